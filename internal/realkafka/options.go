package realkafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Options say which Kafka is started. The zero value is one broker of the
// version under test with one plaintext listener.
type Options struct {
	// Version is a release such as 4.4.0. Empty: the environment variable
	// OTTLA_KAFKA_VERSION, then DefaultVersion.
	Version string `json:",omitempty"`

	// Brokers is 1 (also for 0) or 3, which stand in racks r1, r2 and r3: a
	// leader names the replica in a consumer's rack (KIP-392).
	Brokers int `json:",omitempty"`

	// Secure adds the listeners TLS, MTLS, SASLP, SASLS, REAUTH, EXPIRED,
	// WRONGNAME and FOREIGN beside PLAINTEXT, certificates for them, the users
	// Admin, Alice and Carol, and an authorizer.
	Secure bool `json:",omitempty"`

	// Features are levels of features to format with, such as
	// transaction.version=1. The cluster must finalize exactly these.
	Features map[string]int `json:",omitempty"`

	// Release takes the features of an older release, such as 4.0.
	Release string `json:",omitempty"`

	// Props are lines of server.properties, put in place of the ones that
	// would stand there.
	Props map[string]string `json:",omitempty"`

	// ClassPath are folders with classes of broker plug-ins, see Compile.
	ClassPath []string `json:",omitempty"`

	// Cold leaves the coordinators untouched, so that the first use of each
	// meets the errors of a coordinator that does not exist yet.
	Cold bool `json:",omitempty"`
}

var errUnsupported = errors.New("a real Kafka is started on Linux and other Unix systems only")

// settle fills in what is left open and refuses what a release cannot do.
func (o Options) settle() (Options, version, error) {
	v, err := parseVersion(o.Version)
	if err != nil {
		return o, v, err
	}
	o.Version = v.text
	if len(o.Features) == 0 {
		o.Features = nil // one form of it, because it names a template
	}
	if o.Brokers == 0 {
		o.Brokers = 1
	}
	if o.Brokers != 1 && o.Brokers != 3 {
		return o, v, fmt.Errorf("a cluster has 1 or 3 brokers, not %d", o.Brokers)
	}
	if !v.full() && (o.Brokers > 1 || o.Secure || len(o.Features) > 0 || o.Release != "") {
		return o, v, fmt.Errorf("Apache Kafka %s is started as one plaintext broker only: three brokers, security and features need 3.9 or newer", v.text)
	}
	return o, v, nil
}

// same says whether two settled options make the same cluster.
func (o Options) same(p Options) bool {
	return o.Version == p.Version && o.Brokers == p.Brokers && o.Secure == p.Secure && o.Release == p.Release &&
		maps.Equal(o.Features, p.Features) && maps.Equal(o.Props, p.Props) && slices.Equal(o.ClassPath, p.ClassPath)
}

// wantedFeatures are the levels that the cluster must finalize. Where exact is
// false more is right as well.
func (o Options) wantedFeatures(v version) (levels map[string]int, exact func(string) bool) {
	levels = map[string]int{}
	if o.Release == "" {
		levels = v.features()
	}
	maps.Copy(levels, o.Features)
	return levels, func(name string) bool { _, asked := o.Features[name]; return asked }
}

// User is a user of a cluster with Options.Secure.
type User struct{ Name, Password string }

// Admin may do everything, Alice too; Carol may do nothing. All three log in
// with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. The client certificate's
// principal is User:CN=alice, and everybody on a plaintext listener is
// User:ANONYMOUS: both may do everything.
func Admin() User { return User{"admin", "admin-secret"} }

// Alice is a user who may do everything.
func Alice() User { return User{"alice", "alice-secret"} }

// Carol is a user without any right.
func Carol() User { return User{"carol", "carol-secret"} }

func users() []User { return []User{Admin(), Alice(), Carol()} }

// Names of the listeners of a cluster with Options.Secure. Each broker has
// each of them.
const (
	Plaintext = "PLAINTEXT"
	TLS       = "TLS"       // server certificate of CA
	MTLS      = "MTLS"      // the same, and a client certificate is required
	SASLP     = "SASLP"     // every mechanism over plaintext
	SASLS     = "SASLS"     // every mechanism over TLS
	Reauth    = "REAUTH"    // as SASLP; a login lasts 4 s
	Expired   = "EXPIRED"   // TLS with an expired certificate of CA
	WrongName = "WRONGNAME" // TLS with a certificate for another name
	Foreign   = "FOREIGN"   // TLS with a certificate of a CA that nobody trusts

	Controllers = "CONTROLLER" // of the controllers, which with KRaft all brokers are too
)

// listeners are the names of the client listeners, in a fixed order.
func (o Options) listeners() []string {
	if !o.Secure {
		return []string{Plaintext}
	}
	return []string{Plaintext, TLS, MTLS, SASLP, SASLS, Reauth, Expired, WrongName, Foreign}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
