package gocap

import "time"

// Health is how a bus fares at a moment. An orchestrator asks for one of three
// verdicts:
//
//   - Alive, as the probe of liveness: false when only a restart helps. A broker
//     or a database that is away is no reason to restart a process.
//   - Ready, as the probe of readiness: false while what publishes would fail. A
//     broker that is away leaves it true: messages wait in the outbox.
//   - OK, for an alert or a status page: false while anything keeps messages from
//     being sent, received or handled. Reasons says what.
//
// Its texts may tell addresses; they are for operators, not for the public.
// Durations are nanoseconds in JSON.
type Health struct {
	OK    bool `json:"ok"`
	Alive bool `json:"alive"`
	Ready bool `json:"ready"`
	// Reasons say why it is not OK, one short text each.
	Reasons []string `json:"reasons,omitempty"`
	// Notes need somebody's attention, and do not make it less than OK: rows of
	// versions that nobody serves, messages without a subscription.
	Notes []string `json:"notes,omitempty"`

	// Running: between Start and Stop.
	Running bool `json:"running"`
	// Storage and Transport are the errors of their checks, "" when they can be
	// used. Waiting is the error of reading what waits.
	Storage   string `json:"storage,omitempty"`
	Transport string `json:"transport,omitempty"`
	Waiting   string `json:"waiting,omitempty"`

	Sending  EngineHealth `json:"sending"`
	Handling EngineHealth `json:"handling"`
	// BrokerAway: nothing is sent since then, because the broker could not be
	// reached; zero: it can.
	BrokerAway time.Time `json:"broker_away,omitzero"`

	// Unsent is the outbox, of all instances of this version.
	Unsent Backlog `json:"unsent"`
	// Groups are those that this bus serves, and others of this version that have
	// unfinished rows.
	Groups []GroupHealth `json:"groups,omitempty"`
	// LongestRun is the handler of this bus that has run for longest; nil: none
	// runs.
	LongestRun *RunHealth `json:"longest_run,omitempty"`
	// Versions are other versions that have unfinished rows in these tables.
	Versions []VersionHealth `json:"versions,omitempty"`
}

// EngineHealth is one side of a running bus.
type EngineHealth struct {
	// Living: it owns rows under a number whose lease is renewed. Without one
	// nothing is begun; other instances take its rows.
	Living bool `json:"living"`
	// Resting: the number was given up because the broker is away.
	Resting bool `json:"resting,omitempty"`
	// Stuck is the call that does not return though its time is over, "" when
	// there is none; Since is when it began.
	Stuck string    `json:"stuck,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// InHand is how many messages are being worked on, or wait in memory.
	InHand int `json:"in_hand"`
}

// Backlog is what waits in a table, of all instances of the version.
type Backlog struct {
	// Overdue is how long the message has been due that has been for longest, in
	// work or not; 0: none is due.
	Overdue time.Duration `json:"overdue"`
	// Age is how long ago it was stored; if none is due, that of the failed one
	// that is tried next.
	Age time.Duration `json:"age"`
}

// GroupHealth is a group of consumers.
type GroupHealth struct {
	Name string `json:"name"`
	// Served: by this bus. If not, all but Unhandled and Unmatched is zero.
	Served bool `json:"served"`
	// Receivers that receive at the moment.
	Receivers int `json:"receivers"`
	// Paused since then, by Bus.Pause; zero: it is not.
	Paused time.Time `json:"paused,omitzero"`
	// Failing: nothing could be received since then, last because of LastError;
	// zero: it can.
	Failing   time.Time `json:"failing,omitzero"`
	LastError string    `json:"last_error,omitempty"`
	// Handlers that run.
	Handlers int `json:"handlers"`
	// Unhandled is the inbox, of all instances.
	Unhandled Backlog `json:"unhandled"`
	// Unmatched messages have no subscription so far; counted up to 1000.
	Unmatched int `json:"unmatched,omitempty"`
}

// RunHealth is a handler that runs.
type RunHealth struct {
	Topic      string    `json:"topic"`
	Group      string    `json:"group"`
	Subscriber string    `json:"subscriber"`
	MessageID  string    `json:"message_id"`
	Since      time.Time `json:"since"`
}

// VersionHealth is unfinished rows of another version.
type VersionHealth struct {
	Version string `json:"version"`
	Box     string `json:"box"`  // published or received
	Rows    int    `json:"rows"` // counted up to 1000
	// Served: an instance of that version lives, or this bus takes its rows
	// (Options.AlsoVersions).
	Served bool `json:"served"`
}
