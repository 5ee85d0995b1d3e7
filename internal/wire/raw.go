package wire

// Raw is a body that is ready: a publish takes it as it is, and no codec sees it.
type Raw struct {
	Body []byte
	Type string // header cap-msg-type
}
