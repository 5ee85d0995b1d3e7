package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
)

//go:embed page.html
var page []byte

// maxBody bounds the body of a request, in bytes.
const maxBody = 4 << 10

func routes(s shop, m monitor) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", handler(showPage))
	mux.Handle("GET /status", handler(m.show))
	mux.Handle("GET /products", handler(s.list))
	mux.Handle("POST /products", handler(s.create))
	mux.Handle("DELETE /products/{id}", handler(s.delete))

	// The mux answers these in plain text; a client of JSON wants JSON.
	mux.Handle("/{$}", notAllowed("GET, HEAD"))
	mux.Handle("/status", notAllowed("GET, HEAD"))
	mux.Handle("/products", notAllowed("GET, HEAD, POST"))
	mux.Handle("/products/{id}", notAllowed("DELETE"))
	mux.Handle("/", handler(func(_ http.ResponseWriter, r *http.Request) error {
		return &httpError{http.StatusNotFound, fmt.Sprintf("there is nothing at %s", r.URL.Path)}
	}))

	// Other sites open in the same browser must not change anything here.
	csrf := http.NewCrossOriginProtection()
	csrf.SetDenyHandler(handler(func(http.ResponseWriter, *http.Request) error {
		return &httpError{http.StatusForbidden, "requests from other sites are refused"}
	}))
	return csrf.Handler(mux)
}

func showPage(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page) // a client that has gone needs no page
	return nil
}

// httpError is an error that is the client's to know.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return e.text }

// handler answers a request, or returns why not. It writes nothing before that.
type handler func(w http.ResponseWriter, r *http.Request) error

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := h(w, r)
	if err == nil || r.Context().Err() != nil {
		return // answered, or nobody is left to answer to
	}
	known, ok := errors.AsType[*httpError](err)
	if !ok {
		slog.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		known = &httpError{http.StatusInternalServerError, "the server could not do it; its terminal says why"}
	}
	_ = writeJSON(w, known.status, map[string]string{"error": known.text}) // strings can be encoded
}

func notAllowed(allow string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Allow", allow)
		return &httpError{http.StatusMethodNotAllowed, fmt.Sprintf("method %s is not allowed here; allowed: %s", r.Method, allow)}
	}
}

// readJSON reads a body that is one JSON object with known fields only.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, more := dec.Token(); more == nil {
			err = errors.New("there is more than one value")
		} else if !errors.Is(more, io.EOF) {
			err = more
		}
	}
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &httpError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", maxBody)}
	}
	return &httpError{http.StatusBadRequest, fmt.Sprintf(`the body must be JSON such as {"name":"Tea"}: %v`, err)}
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(text) // a client that has gone needs no answer
	return nil
}
