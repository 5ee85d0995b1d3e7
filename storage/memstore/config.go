package memstore

// Config configures a Store. There is nothing to set.
type Config struct{}
