package archtest

// A row says what one package may import beside the standard library and
// itself. What it may import holds for its test files too.
type row struct {
	pkg      string    // folder below the module root; "." is the root, "x/*" all below x without a row of their own
	ours     []string  // rows whose packages it may import; "*" is any
	mods     []string  // modules of others; "*" is any
	testOurs []string  // more rows for its test files
	testMods []string  // more modules for its test files
	files    []fileRow // modules that some of its files alone may import
}

// A fileRow allows modules to the files with such names only.
type fileRow struct {
	names []string // as for path.Match
	mods  []string
}

// module is the path of this module.
const module = "github.com/capbus/gocap"

// Modules of others, by the name they have in the table.
const (
	modFx        = "go.uber.org/fx"
	modGoleak    = "go.uber.org/goleak"
	modGorm      = "gorm.io/gorm"
	modSQLite    = "github.com/libtnb/sqlite"
	modModern    = "modernc.org/sqlite"
	modPgx       = "github.com/jackc/pgx/v5"
	modGormPg    = "gorm.io/driver/postgres"
	modAMQP      = "github.com/rabbitmq/amqp091-go"
	modWM        = "github.com/ThreeDotsLabs/watermill"
	modWMAMQP    = "github.com/ThreeDotsLabs/watermill-amqp/v3"
	modWMSQL     = "github.com/ThreeDotsLabs/watermill-sql/v3"
	modGormMySQL = "gorm.io/driver/mysql"
	modMySQL     = "github.com/go-sql-driver/mysql"
	modRedis     = "github.com/redis/go-redis/v9"
)

// testOnly lists the modules that test files of every package may import.
// A user's `go mod tidy` downloads what the tests of the packages he imports
// need, so an entry must be worth a download to everybody. goleak is small, needs
// nothing but the standard library, and comes along with fx's tests anyway.
func testOnly() []string { return []string{modGoleak} }

// table is the dependency rule. A row that names "internal/*" does not get
// internal/rows with it: a package belongs to the most exact row.
func table() []row {
	return []row{
		// Contracts. They do not know each other, nor anything else.
		{pkg: "transport"},
		{pkg: "storage"},

		// Mechanics. Those of the rows are for the engines only, else a
		// transport could reach storage through them.
		{pkg: "internal/*", ours: []string{"internal/*"}},
		{pkg: "internal/rows", ours: []string{"storage", "internal/*"}, testOurs: []string{"storage/memstore"}},

		// Engines. They do not know each other. Their tests run on the memory
		// adapters, which import no module of others.
		engine("subscribe"),
		engine("processor"),

		// What people do to messages, on the storage alone.
		{pkg: "operator", ours: []string{"storage", "internal/*"}, testOurs: []string{"storage/memstore"}},

		// Options, and the facade.
		{pkg: ".", ours: library()},
		{
			// Its tests with a database stand in integration/: a test import of a
			// driver is downloaded by every user's go mod tidy (348 MB instead of
			// 19 MB, measured with SQLite).
			pkg:      "cap",
			ours:     append([]string{".", "operator"}, library()...),
			testOurs: []string{"storage/memstore", "transport/memqueue"},
			files:    []fileRow{{names: []string{"fx.go", "*fx*_test.go"}, mods: []string{modFx}}},
		},
		{
			pkg:  "cap/captest",
			ours: append([]string{".", "cap", "operator", "storage/memstore", "transport/memqueue"}, library()...),
		},

		// Effects past the inbox. The trackers know their client library alone, and
		// the tests of those on databases stand in integration/tracking/.
		{
			pkg:      "idempotency",
			ours:     []string{"subscribe", "transport"},
			testOurs: []string{"idempotency/memtracker", "cap", "cap/captest", "operator", ".", "storage", "storage/memstore", "transport/memqueue"},
			files:    []fileRow{{names: []string{"*fx*_test.go"}, mods: []string{modFx}}},
		},
		{pkg: "idempotency/trackertest", ours: []string{"idempotency"}, testOurs: []string{"idempotency/memtracker"}},
		{pkg: "idempotency/memtracker", ours: []string{"idempotency"}, testOurs: []string{"idempotency/trackertest"}},
		{pkg: "idempotency/gormtracker", ours: []string{"idempotency"}, mods: []string{modGorm}},
		{
			pkg:      "idempotency/redistracker",
			ours:     []string{"idempotency"},
			mods:     []string{modRedis},
			testOurs: []string{"idempotency/trackertest", "internal/*"},
		},

		{
			pkg:      "cap/capwm",
			ours:     append([]string{".", "cap"}, library()...),
			mods:     []string{modWM},
			testOurs: []string{"operator", "storage/memstore", "transport/memqueue"},
		},

		// Conformance suites.
		{pkg: "transport/transporttest", ours: []string{"transport", "internal/*"}},
		{pkg: "storage/storagetest", ours: []string{"storage", "internal/*"}, testOurs: []string{"storage/memstore"}},

		// Adapters: their own contract and their own client library.
		{
			pkg:      "transport/memqueue",
			ours:     []string{"transport", "internal/*"},
			testOurs: []string{"transport/transporttest"},
		},
		{
			pkg:      "transport/rabbitmq",
			ours:     []string{"transport", "internal/*"},
			mods:     []string{modAMQP, modWM, modWMAMQP},
			testOurs: []string{"transport/transporttest"},
		},
		{
			// The modules of Watermill that it is tried with stand in a module of
			// their own, integration/watermill.
			pkg:      "transport/wmadapter",
			ours:     []string{"transport", "internal/*"},
			mods:     []string{modWM},
			testOurs: []string{"transport/transporttest"},
		},
		{
			pkg:      "transport/sqlqueue",
			ours:     []string{"transport", "internal/*"},
			mods:     []string{modPgx, modWM, modWMSQL},
			testOurs: []string{"transport/transporttest"},
		},
		{
			pkg:      "storage/memstore",
			ours:     []string{"storage", "internal/*"},
			testOurs: []string{"storage/storagetest"},
		},
		{
			pkg:      "storage/gormstore",
			ours:     []string{"storage", "internal/*"},
			mods:     []string{modGorm},
			testOurs: []string{"storage/storagetest"},
		},
		{
			pkg:      "storage/sqlite",
			ours:     []string{"storage", "storage/gormstore", "internal/*"},
			mods:     []string{modGorm, modSQLite, modModern},
			testOurs: []string{"storage/storagetest"},
		},
		{
			pkg:  "storage/pgxtx",
			ours: []string{"storage", "internal/*"},
			mods: []string{modPgx},
		},

		{
			pkg:      "storage/postgres",
			ours:     []string{"storage", "storage/gormstore", "internal/*"},
			mods:     []string{modGorm, modGormPg, modPgx},
			testOurs: []string{"storage/storagetest"},
		},
		{
			pkg:      "storage/mysql",
			ours:     []string{"storage", "storage/gormstore", "internal/*"},
			mods:     []string{modGorm, modGormMySQL, modMySQL},
			testOurs: []string{"storage/storagetest"},
		},

		// Programs, and tests across adapters. Nothing imports them.
		{pkg: "examples/*", ours: []string{"*"}, mods: []string{"*"}},
		{pkg: "integration/*", ours: []string{"*"}, mods: []string{"*"}},
	}
}

func engine(pkg string) row {
	return row{
		pkg:      pkg,
		ours:     []string{"transport", "storage", "internal/*", "internal/rows"},
		testOurs: []string{"storage/memstore", "transport/memqueue"},
	}
}

func library() []string {
	return []string{"transport", "storage", "subscribe", "processor", "internal/*", "internal/rows"}
}

// bare lists the rows whose packages, tests included, reach no module of others
// but those of testOnly, however long the way: a user who takes one adapter
// gets that adapter's client library and no other.
func bare() []string {
	return []string{
		"transport", "storage", "subscribe", "processor", "operator", ".", "internal/*", "internal/rows",
		"transport/transporttest", "storage/storagetest", "transport/memqueue", "storage/memstore",
		"idempotency/trackertest", "idempotency/memtracker",
	}
}
