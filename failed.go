package gocap

import (
	"time"

	"github.com/capbus/gocap/transport"
)

// Kind says on which way a message failed.
type Kind uint8

// The ways.
const (
	Publish   Kind = iota + 1 // it could not be sent
	Subscribe                 // it could not be handled
)

func (k Kind) String() string {
	if k == Publish {
		return "publish"
	}
	return "subscribe"
}

// FailedInfo tells what has failed for good.
type FailedInfo struct {
	Kind              Kind
	Message           *transport.Message
	Group, Subscriber string // of a message that could not be handled
	Attempts          int    // answered with a failure
	LastError         string
	FailedAt          time.Time // UTC, this process's clock
}
