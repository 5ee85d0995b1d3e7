package main

import (
	"testing"

	"github.com/capbus/gocap/internal/testenv"
)

func TestStory(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), testenv.RabbitMQ()); err != nil {
		t.Fatal(err)
	}
}
