package cli

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/ottlatest"
)

// deadAddr is an address that nothing listens on while the test runs: its port
// belongs to a connection, so the system gives it to nobody.
func deadAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); l.Close() })
	return c.LocalAddr().String()
}

func TestNothingListensNamesEachAddressAndTheReason(t *testing.T) {
	one, two := deadAddr(t), deadAddr(t)
	for _, args := range [][]string{{"brokers"}, {"produce", "t"}, {"consume", "t"}, {"topics", "list"}} {
		ottla(t, append(args, "-b", one+","+two)...).wantError(t, 1, one+": connection refused", two+": connection refused", "-b HOST:PORT")
	}
}

func TestPortsThatSpeakSomethingElse(t *testing.T) {
	ca := newAuthority(t, "test CA")
	secure := newEmbedded(t, ottlatest.Config{Brokers: 1, TLS: ca.server(ca.sign("broker", time.Now().Add(time.Hour)))})
	plain := newEmbedded(t, ottlatest.Config{Brokers: 1})
	web, secureWeb := httptest.NewUnstartedServer(http.NotFoundHandler()), httptest.NewUnstartedServer(http.NotFoundHandler())
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	secureWeb.Config.ErrorLog = web.Config.ErrorLog
	web.Start()
	defer web.Close()
	secureWeb.StartTLS()
	defer secureWeb.Close()
	webAddr := strings.TrimPrefix(web.URL, "http://")

	secure.ottla("brokers").wantError(t, 1, secure.Bootstrap()[0], "TLS answers there", "--tls")
	t.Run("B058", func(t *testing.T) {
		plain.ottla("brokers", "--tls").wantError(t, 1, plain.Bootstrap()[0], "plaintext", "leave --tls")
	})
	ottla(t, "brokers", "-b", webAddr, "--tls").wantError(t, 1, webAddr, "HTTP server")
	ottla(t, "brokers", "-b", webAddr, "-X", "socket.connection.setup.timeout.ms=1000").wantError(t, 1, webAddr, "HTTP server", "Kafka listener")
	ottla(t, "brokers", "-b", strings.TrimPrefix(secureWeb.URL, "https://")).wantStatus(t, 1)
}

func TestASilentPeerIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ottla(t, "brokers", "-b", l.Addr().String(), "-X", "socket.connection.setup.timeout.ms=300").wantError(t, 1, l.Addr().String(), "does not answer")
}

// TestASilentPeerBehindTLSIsNamed and not taken for one that wants TLS; a file of
// settings asks for no TLS by itself.
func TestASilentPeerBehindTLSIsNamed(t *testing.T) {
	t.Parallel() // it waits for most of its time
	ca := newAuthority(t, "test CA")
	l, err := tls.Listen("tcp", "127.0.0.1:0", ca.server(ca.sign("silent", time.Now().Add(time.Hour))))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go io.Copy(io.Discard, c) // the handshake, and then nothing
		}
	}()
	res := ottla(t, "brokers", "-b", l.Addr().String(), "--ca", ca.file, "-X", "socket.connection.setup.timeout.ms=5000")
	res.wantError(t, 1, l.Addr().String(), "does not answer")
	if strings.Contains(res.stderr, "--tls") {
		t.Error(res.stderr)
	}
	plain := writeFile(t, "plain.properties", "security.protocol=PLAINTEXT\nsocket.connection.setup.timeout.ms=300\n")
	ottla(t, "brokers", "-b", l.Addr().String(), "--config", plain).wantError(t, 1, "TLS answers there", "--tls")
}

func TestCertificatesThatAreRefused(t *testing.T) {
	ca, other := newAuthority(t, "right CA"), newAuthority(t, "other CA")
	later := time.Now().Add(time.Hour)
	start := func(l leaf) *embedded {
		return newEmbedded(t, ottlatest.Config{Brokers: 1, TLS: ca.server(l)})
	}
	good := start(ca.sign("good", later))
	good.ottla("brokers", "--ca", other.file).wantError(t, 1, good.Bootstrap()[0], "authority", "right CA", other.file, "--ca FILE")
	good.ottla("brokers", "--tls").wantError(t, 1, "authority", "system's")
	start(ca.sign("old", time.Now().Add(-time.Hour))).ottla("brokers", "--ca", ca.file).wantError(t, 1, "out of its time", "valid from")
	wrong := start(ca.sign("wrong", later, "kafka.example.org", "b1.example.org"))
	wrong.ottla("brokers", "--ca", ca.file).wantError(t, 1, "another name", "wanted 127.0.0.1", "kafka.example.org, b1.example.org", "--tls-name")
	wrong.ottla("brokers", "--ca", ca.file, "--tls-name", "kafka.example.org").wantDone(t)
	good.ottla("brokers", "--ca", ca.file).wantDone(t)
	run{args: []string{"brokers", "--tls"}, env: append(good.env(), "OTTLA_CA="+ca.file)}.do(t).wantDone(t)
	good.ottla("brokers", "--ca", "/nowhere/ca.pem").wantError(t, 2, "no such file")
	good.ottla("brokers", "--ca", ca.sign("x", later).key).wantError(t, 2, "no certificate")
}

func TestB059ClientCertificates(t *testing.T) {
	ca, other := newAuthority(t, "right CA"), newAuthority(t, "other CA")
	later := time.Now().Add(time.Hour)
	mine, foreign := ca.sign("alice", later), other.sign("mallory", later)
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			cfg := ca.server(ca.sign("broker", later))
			cfg.ClientAuth, cfg.MaxVersion = tls.RequireAndVerifyClientCert, version
			e := newEmbedded(t, ottlatest.Config{Brokers: 1, TLS: cfg})
			e.ottla("brokers", "--ca", ca.file).wantError(t, 1, e.Bootstrap()[0], "TLS alert", "wants a certificate", "--cert FILE --key FILE")
			e.ottla("brokers", "--ca", ca.file, "--cert", foreign.cert, "--key", foreign.key).wantError(t, 1, "TLS alert", "signed by an authority that the broker trusts")
			e.ottla("brokers", "--ca", ca.file, "--cert", mine.cert, "--key", mine.key).wantDone(t)
			run{args: []string{"brokers", "--tls"}, env: append(e.env(), "OTTLA_CA="+ca.file, "OTTLA_CERT="+mine.cert, "OTTLA_KEY="+mine.key)}.do(t).wantDone(t)
			pemFile := ca.write("both.pem", append(readAll(t, mine.key), readAll(t, mine.cert)...))
			java := writeFile(t, "mtls.properties", "security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location="+pemFile+
				"\nssl.truststore.type=PEM\nssl.truststore.certificates="+strings.ReplaceAll(string(readAll(t, ca.file)), "\n", "\\n")+"\n")
			e.ottla("brokers", "--config", java).wantDone(t)
		})
	}
	ottla(t, "brokers", "--cert", mine.cert).wantError(t, 2, "holds no key", "--key")
	ottla(t, "brokers", "--cert", mine.cert, "--key", foreign.key).wantError(t, 2, "private key does not match")
}

func readAll(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestLogins(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Brokers: 1, Users: []ottlatest.User{
		{Mechanism: "PLAIN", Name: "alice", Password: "alice-secret"},
		{Mechanism: "SCRAM-SHA-256", Name: "bob", Password: "bob-secret"},
		{Mechanism: "SCRAM-SHA-512", Name: "carol", Password: "carol-secret"},
	}})
	login := func(mechanism, user, password string) result {
		return run{args: []string{"brokers", "--sasl", mechanism, "--user", user}, env: append(e.env(), "OTTLA_PASSWORD="+password)}.do(t)
	}
	login("plain", "alice", "alice-secret").wantDone(t)
	login("scram-sha-256", "bob", "bob-secret").wantDone(t)
	login("SCRAM-SHA-512", "carol", "carol-secret").wantDone(t)
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		res := login(mechanism, "alice", "wrong-secret")
		res.wantError(t, 1, e.Bootstrap()[0], "alice", strings.ToUpper(mechanism), "refused", "OTTLA_PASSWORD")
		if strings.Contains(res.stderr, "wrong-secret") {
			t.Errorf("the password is told: %s", res.stderr)
		}
	}
	t.Run("B062", func(t *testing.T) {
		login("oauthbearer", "alice", "token").wantError(t, 1, "does not offer OAUTHBEARER", "PLAIN", "SCRAM-SHA-256")
	})
	e.ottla("brokers", "--sasl", "plain", "--user", "alice", "--password-file", writeFile(t, "pw", "alice-secret\n")).wantDone(t)
	java := writeFile(t, "java.properties", "bootstrap.servers="+e.Bootstrap()[0]+"\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"+
		"sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"bob\" password=\"bob-secret\";\n")
	ottla(t, "brokers", "--config", java).wantDone(t)
	e.ottla("brokers", "--password", "x").wantError(t, 2, "unknown flag", "--password-file")
	e.ottla("brokers").wantError(t, 1, e.Bootstrap()[0], "closed when the first request comes", "--sasl")
}

func TestNoFlagSwitchesCertificateChecksOff(t *testing.T) {
	for _, flag := range []string{"--insecure", "--skip-verify", "--tls-insecure", "-k"} {
		ottla(t, "brokers", flag).wantError(t, 2, "unknown")
	}
}

func TestNotAuthorisedNamesOperationResourceAndPrincipal(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"events": 1}, Users: []ottlatest.User{{Mechanism: "PLAIN", Name: "alice", Password: "pw"}}})
	alice := func(stdin string, args ...string) result {
		return run{args: append(args, "--sasl", "plain", "--user", "alice"), env: append(e.env(), "OTTLA_PASSWORD=pw"), stdin: stdin}.do(t)
	}
	f := e.Fail(int16(kmsg.Produce), kerr.TopicAuthorizationFailed.Code, -1, 0)
	res := alice("a\nb\n", "produce", "events")
	f.Remove()
	if res.status != 1 || !strings.Contains(res.stderr, "line 1: refused: User:alice is not authorised to write topic events") ||
		!strings.HasSuffix(res.stderr, "ottla: 0 records written, 2 refused, 0 unknown\n") {
		t.Errorf("%+v", res)
	}
	f = e.Fail(int16(kmsg.CreateTopics), kerr.TopicAuthorizationFailed.Code, -1, 0)
	alice("", "topics", "create", "x").wantError(t, 1, "User:alice", "create topic x", "ACL")
	f.Remove()
	f = e.Fail(int16(kmsg.Metadata), kerr.TopicAuthorizationFailed.Code, -1, 0)
	alice("", "consume", "events", "-e").wantError(t, 1, "User:alice", "topic events")
	f.Remove()
}

func TestAnUnknownOutcomeIsStatus3(t *testing.T) {
	t.Parallel() // it waits for most of its time
	e := newEmbedded(t, ottlatest.Config{Brokers: 1})
	e.Fail(int16(kmsg.CreateTopics), kerr.RequestTimedOut.Code, -1, 0)
	e.ottla("topics", "create", "x", "--timeout", "5s").wantError(t, 3, "not known whether")
}
