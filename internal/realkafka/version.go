package realkafka

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// DefaultVersion is the Apache Kafka that is started when no other is asked for.
const DefaultVersion = "4.4.0"

// VersionEnv is the environment variable that names another version for every
// cluster whose Options name none.
const VersionEnv = "OTTLA_KAFKA_VERSION"

// version is a release of Apache Kafka.
type version struct {
	major, minor int
	text         string // as in Maven
}

var versionForm = regexp.MustCompile(`^\d{1,2}\.\d{1,2}\.\d{1,2}(\.\d{1,2})?$`)

// parseVersion reads a release such as 4.4.0 or 0.11.0.3; an empty text means
// VersionEnv and then DefaultVersion.
func parseVersion(text string) (version, error) {
	text = cmp.Or(text, os.Getenv(VersionEnv), DefaultVersion)
	if !versionForm.MatchString(text) {
		return version{}, fmt.Errorf("%q is not a release of Apache Kafka: give one such as %s, 3.9.2 or 0.11.0.3", text, DefaultVersion)
	}
	parts := strings.Split(text, ".")
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	v := version{major: major, minor: minor, text: text}
	if v.before(0, 10) {
		return version{}, fmt.Errorf("Apache Kafka %s is too old: 0.10.2.2 is the oldest that is started here", text)
	}
	return v, nil
}

func (v version) before(major, minor int) bool {
	return v.major < major || v.major == major && v.minor < minor
}

// zooKeeper says whether the release is started with ZooKeeper. KRaft exists
// in 3.0 to 3.2 as a preview only.
func (v version) zooKeeper() bool { return v.before(3, 3) }

// full says whether the release gets three brokers, every listener and
// features; older ones get one plaintext broker.
func (v version) full() bool { return !v.before(3, 9) }

// scala is the Scala release in the name of the broker's artifact.
func (v version) scala() string {
	switch {
	case v.before(1, 0):
		return "2.11"
	case v.before(2, 4):
		return "2.12"
	}
	return "2.13"
}

// java is the oldest Java that runs the release here.
func (v version) java() int {
	if v.before(4, 0) {
		return 8
	}
	return 17
}

// features are the levels that a release finalizes at least by itself. A
// broker without them was formatted wrongly.
func (v version) features() map[string]int {
	f := map[string]int{}
	if !v.before(4, 0) {
		f["transaction.version"], f["group.version"] = 2, 1
	}
	if !v.before(4, 2) {
		f["share.version"], f["streams.version"] = 1, 1
	}
	return f
}
