package sqlqueue

import (
	"database/sql"
	"strconv"
	"strings"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/capbus/gocap/internal/wire"
	"github.com/capbus/gocap/transport"
)

// queue is the topic in Watermill's sense: there is one set of tables.
const queue = "queue"

// unprepared has pgx send a text with its parameters at once: plans are made for
// the tables as they are, which grow from nothing to millions of rows and back,
// and no session is needed.
func unprepared(args []any) []any {
	return append([]any{pgx.QueryExecModeCacheDescribe}, args...)
}

// schema is what the adapters of both directions have in common.
type schema struct{ tables tables }

// SchemaInitializingQueries makes the tables.
func (s schema) SchemaInitializingQueries(string) []wmsql.Query {
	return []wmsql.Query{{Query: s.tables.setup()}}
}

// SubscribeIsolationLevel is what looks rely on, whatever the session's default.
func (schema) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelReadCommitted }

// insertion is the wmsql.SchemaAdapter of one Publish: it knows to which groups
// each message goes.
type insertion struct {
	schema

	msgs       []*transport.Message
	groups     [][]int64 // of each message
	generation int64     // of the bindings that these come from
}

// InsertQuery writes messages and deliveries, or nothing if the bindings have
// changed.
func (in insertion) InsertQuery(_ string, msgs message.Messages) (wmsql.Query, error) {
	n := len(msgs)
	topics, ids, groups := make([]string, n), make([]string, n), make([]string, n)
	headers, bodies := make([][]byte, n), make([][]byte, n)
	for i, m := range msgs {
		topics[i], ids[i], groups[i] = in.msgs[i].Topic, m.UUID, arrayLiteral(in.groups[i])
		headers[i], bodies[i] = wire.EncodeHeaders(m.Metadata), m.Payload
		if bodies[i] == nil {
			bodies[i] = []byte{}
		}
	}
	t := in.tables
	return wmsql.Query{
		Query: `WITH m AS (
	INSERT INTO ` + t.messages + ` (topic, message_id, headers, body, groups)
	SELECT u.topic, u.id, u.headers, u.body, u.groups::bigint[]
	FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[], $5::text[]) WITH ORDINALITY AS u(topic, id, headers, body, groups, n)
	WHERE $6::bigint = (SELECT generation FROM ` + t.state + `)
	ORDER BY u.n
	RETURNING seq, groups, octet_length(headers) + octet_length(body) AS size
)
INSERT INTO ` + t.deliveries + ` (group_id, seq, size) SELECT g, m.seq, m.size FROM m, unnest(m.groups) AS g`,
		Args: unprepared([]any{topics, ids, headers, bodies, groups, in.generation}),
	}, nil
}

// SelectQuery is for subscribers.
func (insertion) SelectQuery(string, string, wmsql.OffsetsAdapter) wmsql.Query { return wmsql.Query{} }

// UnmarshalMessage is for subscribers.
func (insertion) UnmarshalMessage(wmsql.Scanner) (wmsql.Row, error) {
	return wmsql.Row{}, sql.ErrNoRows
}

func arrayLiteral(numbers []int64) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, n := range numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(n, 10))
	}
	b.WriteByte('}')
	return b.String()
}

// noOffsets is the wmsql.OffsetsAdapter: a group's place is the deliveries that
// are there, and taking them is part of the select.
type noOffsets struct{}

func (noOffsets) AckMessageQuery(string, wmsql.Row, string) wmsql.Query { return wmsql.Query{} }
func (noOffsets) ConsumedMessageQuery(string, wmsql.Row, string, []byte) wmsql.Query {
	return wmsql.Query{}
}
func (noOffsets) NextOffsetQuery(string, string) wmsql.Query            { return wmsql.Query{} }
func (noOffsets) SchemaInitializingQueries(string) []wmsql.Query        { return nil }
func (noOffsets) BeforeSubscribingQueries(string, string) []wmsql.Query { return nil }
