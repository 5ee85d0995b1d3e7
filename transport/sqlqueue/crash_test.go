package sqlqueue_test

const childDSN = "GOCAP_TEST_CHILD_DSN"

func child(dsn string) {}
