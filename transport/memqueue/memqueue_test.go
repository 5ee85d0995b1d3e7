package memqueue_test

import (
	"testing"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
	"github.com/capbus/gocap/transport/transporttest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, func(*testing.T) transport.Transport { return memqueue.New(memqueue.Config{}) })
}
