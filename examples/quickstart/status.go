package main

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
)

// This file is for the demonstration only: it looks into the tables of the bus,
// which are no interface. A service needs none of it.

// monitor reads what happened to the messages.
type monitor struct {
	db      *gorm.DB
	started time.Time
	crash   bool
}

// report is what the page shows: all counts, the newest messages and products.
type report struct {
	Started  time.Time `json:"started"` // this process
	Crash    bool      `json:"crash"`
	Tables   tables    `json:"tables"`
	Messages []message `json:"messages"`
	Products []product `json:"products"`
}

type tables struct {
	Products  int `json:"products"`
	Coupons   int `json:"coupons"`
	Files     int `json:"files"`
	Published int `json:"published"`
	Sent      int `json:"sent"`
	Received  int `json:"received"`
	Handled   int `json:"handled"`
}

// message is a row of the outbox, with its rows of the inbox by group.
type message struct {
	ID     string          `json:"id"`
	Topic  string          `json:"topic"`
	Body   string          `json:"body"`
	Outbox step            `json:"outbox"`
	Groups map[string]step `json:"groups"`
}

// step is how far a row is.
type step struct {
	State    string    `json:"state"` // waiting, retrying, failed or done
	Added    time.Time `json:"added"`
	Done     time.Time `json:"done,omitzero"`
	Next     time.Time `json:"next,omitzero"` // the next attempt
	Attempts int       `json:"attempts"`
	Error    string    `json:"error,omitempty"` // of the last attempt that failed
}

// product is a product with what the two groups have for it.
type product struct {
	Product
	Coupons string `json:"coupons"`
	Files   string `json:"files"`
}

func (m monitor) show(w http.ResponseWriter, r *http.Request) error {
	db := m.db.WithContext(r.Context())
	out := report{Started: m.started, Crash: m.crash, Products: []product{}}
	err := db.Raw(`SELECT
		(SELECT count(*) FROM products) AS products,
		(SELECT count(*) FROM coupons) AS coupons,
		(SELECT count(*) FROM files WHERE NOT removed) AS files,
		(SELECT count(*) FROM cap_published) AS published,
		(SELECT count(*) FROM cap_published WHERE status = @done) AS sent,
		(SELECT count(*) FROM cap_received) AS received,
		(SELECT count(*) FROM cap_received WHERE status = @done) AS handled`,
		map[string]any{"done": storage.Succeeded}).Scan(&out.Tables).Error
	if err != nil {
		return err
	}
	err = db.Raw(`SELECT id, name,
		(SELECT group_concat(code, ', ') FROM coupons WHERE product_id = p.id) AS coupons,
		(SELECT group_concat(path, ', ') FROM files WHERE product_id = p.id AND NOT removed) AS files
		FROM products p ORDER BY id DESC LIMIT 50`).Scan(&out.Products).Error
	if err != nil {
		return err
	}
	if out.Messages, err = m.messages(db); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, out)
}

// row has the columns that the two tables share. Moments are microseconds since
// 1970; expires_at is set once there is nothing more to do.
type row struct {
	Status               storage.Status
	Retries              int
	LastError            string
	AddedAt, UpdatedAt   int64
	DueAt, ExpiresAt     *int64
	ID, Body             []byte // of the outbox
	Name                 string // of the outbox
	MessageID, GroupName string // of the inbox
}

const columns = `status, retries, last_error, added_at, updated_at, due_at, expires_at`

func (m monitor) messages(db *gorm.DB) ([]message, error) {
	var outbox, inbox []row
	err := db.Raw(`SELECT id, name, body, ` + columns + ` FROM cap_published ORDER BY seq DESC LIMIT 50`).Scan(&outbox).Error
	if err != nil {
		return nil, err
	}
	list := make([]message, len(outbox))
	index := make(map[string]int, len(outbox))
	for i, r := range outbox {
		id := storage.ID(r.ID).String()
		list[i] = message{ID: id, Topic: r.Name, Body: string(r.Body), Outbox: r.step(), Groups: map[string]step{}}
		index[id] = i
	}
	err = db.Raw(`SELECT message_id, group_name, `+columns+` FROM cap_received WHERE message_id IN ?`,
		slices.Collect(maps.Keys(index))).Scan(&inbox).Error
	for _, r := range inbox {
		list[index[r.MessageID]].Groups[r.GroupName] = r.step()
	}
	return list, err
}

func (r row) step() step {
	s := step{State: "waiting", Added: time.UnixMicro(r.AddedAt).UTC(), Attempts: r.Retries, Error: r.LastError}
	switch {
	case r.ExpiresAt != nil && r.Status == storage.Succeeded:
		s.State, s.Done, s.Attempts = "done", time.UnixMicro(r.UpdatedAt).UTC(), r.Retries+1
	case r.ExpiresAt != nil:
		s.State, s.Done = "failed", time.UnixMicro(r.UpdatedAt).UTC()
	case r.Retries > 0 && r.DueAt != nil:
		s.State, s.Next = "retrying", time.UnixMicro(*r.DueAt).UTC()
	}
	return s
}

// unsent counts the messages that are committed and not sent.
func (m monitor) unsent() (n int64) {
	m.db.Raw(`SELECT count(*) FROM cap_published WHERE expires_at IS NULL`).Scan(&n)
	return n
}

// nextProduct is the id that the next product gets.
func (m monitor) nextProduct() (id int64) {
	m.db.Raw(`SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'products'`).Scan(&id)
	return id
}
