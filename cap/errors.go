package cap

import (
	"errors"

	"github.com/capbus/gocap"
	"github.com/capbus/gocap/storage"
)

// Errors that callers can tell apart with errors.Is.
var (
	// ErrNoBus: no bus in the context, and no default one.
	ErrNoBus = errors.New("no bus: call the method of a *cap.Bus, make one with cap.New (it becomes the default when none is set), or set one with cap.SetDefault; its Stop takes the default one back")
	// ErrNoTx: the transaction is nil, and the context carries none.
	ErrNoTx = storage.ErrNoTx
	// ErrDuplicate: a message with the id of WithID exists already. The caller's
	// transaction stays usable, and nothing of the call is in it.
	ErrDuplicate = storage.ErrDuplicate
	// ErrStarted: Start of a bus that is running.
	ErrStarted = errors.New("the bus is running already")
	// ErrStopping is the cause by which the context of a handler ends when the bus
	// stops and the handler has not returned in time.
	ErrStopping = errors.New("the bus is stopping")
)

type (
	// FieldError is a problem of one field of Options.
	FieldError = gocap.FieldError
	// TxTypeError says that a value cannot be used as a transaction.
	TxTypeError = storage.TxTypeError
)
