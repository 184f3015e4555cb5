package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ottla/ottla/record/compress"
)

func TestJavaProperties(t *testing.T) {
	got, err := parseJavaProperties([]byte(strings.Join([]string{
		"# a comment", "! another", "", "  a = 1", "b:2", "c 3", "d=", "e",
		`long = one \`, `   two \`, `   three`, `k\=ey=v\:al`, `tab=\t\n\\`, `u=\u00fc\ud83d\ude00x`, "crlf=x\r", `even=a\\`, `last=x \`,
	}, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	want := []property{
		{"a", "1", 4}, {"b", "2", 5}, {"c", "3", 6}, {"d", "", 7}, {"e", "", 8}, {"long", "one two three", 9},
		{"k=ey", "v:al", 12}, {"tab", "\t\n\\", 13}, {"u", "ü😀x", 14}, {"crlf", "x", 15}, {"even", `a\`, 17}, {"last", "x ", 18},
	}
	for i := range want {
		if want[i].line > 15 {
			want[i].line-- // the CR before the LF is one line end
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	latin, err := parseJavaProperties([]byte("p=\xfc"))
	if err != nil || latin[0].value != "ü" {
		t.Errorf("ISO-8859-1: %+v, %v", latin, err)
	}
	for _, bad := range []string{`a=\u12`, `a=\uzzzz`} {
		if got, err := parseJavaProperties([]byte(bad)); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
}

func FuzzJavaProperties(f *testing.F) {
	for _, s := range []string{"a=b", `a\=b : c\`, "\\u12", "# x\ny z\\\n  w", "\xff=\xfe", `\ud800=\udc00`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		props, err := parseJavaProperties(data)
		if err != nil {
			return
		}
		last := 0
		for _, p := range props {
			if p.line <= last {
				t.Fatalf("%q: lines do not rise: %+v", data, props)
			}
			last = p.line
		}
	})
}

func TestLoginModules(t *testing.T) {
	login, err := parseJAAS(`org.apache.kafka.common.security.scram.ScramLoginModule required username="al\"ice" password='p=;w' tokenauth=true;`)
	if err != nil || login.module != "ScramLoginModule" || login.options["username"] != `al"ice` || login.options["password"] != "p=;w" || login.options["tokenauth"] != "true" {
		t.Errorf("%+v, %v", login, err)
	}
	for _, bad := range []string{"", "X", "X required", `X required a="b"`, `X a="s3cret";`, `X required a "s3cret";`, `X required a="s3cret;`, `X required =;`} {
		_, err := parseJAAS(bad)
		if err == nil {
			t.Errorf("%q was taken", bad)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error tells the password: %v", bad, err)
		}
	}
}

func FuzzJAAS(f *testing.F) {
	f.Add(`a.B required username="x" password="y";`)
	f.Add(`B required a='\`)
	f.Fuzz(func(t *testing.T, s string) {
		login, err := parseJAAS(s)
		if err == nil && strings.Contains(login.module, ".") {
			t.Fatalf("%q: module %q", s, login.module)
		}
	})
}

// testApp is an app whose notes go to the returned builder.
func testApp(t *testing.T) (*app, *strings.Builder) {
	t.Helper()
	for _, name := range []string{"OTTLA_BOOTSTRAP", "OTTLA_CA", "OTTLA_CERT", "OTTLA_KEY", "OTTLA_USER", "OTTLA_PASSWORD"} {
		t.Setenv(name, "")
	}
	var notes strings.Builder
	a := &app{notes: newNotes(&notes)}
	a.shared.timeout = defaultTimeout
	return a, &notes
}

func TestPropertiesAreSettings(t *testing.T) {
	a, _ := testApp(t)
	a.shared.properties = []string{
		"client.id=me", "linger.ms=0", "batch.size=1000", "isolation.level=read_uncommitted", "compression.type=zstd",
		"metadata.max.age.ms=1500", "bootstrap.servers=one,SASL_SSL://two:1, [::1]:9093", "acks=all", "auto.offset.reset=none",
	}
	s, err := a.settings()
	if err != nil {
		t.Fatal(err)
	}
	if s.clientID != "me" || !s.producer.lingerSet || s.producer.linger != 0 || s.producer.batchSize != 1000 || !s.consumer.uncommitted ||
		s.producer.codec != compress.Zstd || s.metadataMaxAge != 1500*time.Millisecond || s.consumer.reset != "none" ||
		!slices.Equal(s.bootstrap, []string{"one:9092", "two:1", "[::1]:9093"}) {
		t.Errorf("%+v", s)
	}
}

// TestA8ControllersTakeThePlaceOfBrokers fails where the variable, or the default,
// is used beside them.
func TestA8ControllersTakeThePlaceOfBrokers(t *testing.T) {
	a, _ := testApp(t)
	t.Setenv("OTTLA_BOOTSTRAP", "env:1")
	a.shared.properties = []string{"bootstrap.controllers=c1:9093,c2:9093"}
	s, err := a.settings()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := a.clusterConfig(s)
	if err != nil || len(cfg.Bootstrap) > 0 || !slices.Equal(cfg.BootstrapControllers, []string{"c1:9093", "c2:9093"}) {
		t.Errorf("%v, %v", cfg, err)
	}
	a.shared.bootstrap = "b:1"
	if _, err = a.settings(); err == nil || !strings.Contains(err.Error(), "excludes --bootstrap") {
		t.Errorf("beside --bootstrap: %v", err)
	}
}

func TestUnknownPropertiesAreUsageErrorsWithNearNames(t *testing.T) {
	for prop, want := range map[string]string{
		"linger.mss=5":                            "did you mean linger.ms?",
		"isolation=x":                             "isolation.level",
		"linger.ms=soon":                          "milliseconds",
		"linger.ms=-1":                            "milliseconds",
		"acks=2":                                  "all, 1 or 0",
		"enable.idempotence=yes":                  "true or false",
		"novalue":                                 "NAME=VALUE",
		"group.id=g":                              "has no effect",
		"compression.type=lzo":                    "none, gzip",
		"isolation.level=committed":               "read_committed",
		"batch.size=0":                            "from 1",
		"bootstrap.servers=http://x:1":            "web address",
		"ssl.endpoint.identification.algorithm=":  "certificates are always checked",
		"ssl.truststore.type=JKS":                 "keytool",
		"sasl.jaas.config=Krb5LoginModule a;":     "control flag",
		"sasl.jaas.config=Krb5 required a=\"b\";": "login module",
		"security.protocol=TLS":                   "expected PLAINTEXT",
		"security.protocol=SASL_SSL":              "sasl.mechanism",
		"sasl.mechanism=GSSAPI":                   "expected PLAIN",
	} {
		a, _ := testApp(t)
		a.shared.properties = []string{prop}
		_, err := a.settings()
		var usage *usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", prop, err, want)
		}
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestConfigFilesOfJavaClients(t *testing.T) {
	a, notes := testApp(t)
	a.shared.config = writeFile(t, "client.properties", `
bootstrap.servers=b1:9093,b2:9093
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
  username="alice" \
  password="alice-secret";
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
group.id=g
schema.registry.url=http://x
`)
	s, err := a.settings()
	if err != nil {
		t.Fatal(err)
	}
	if s.security.tls || s.security.mechanism != "SCRAM-SHA-512" || s.security.user != "alice" || s.security.password.reveal() != "alice-secret" || len(s.bootstrap) != 2 {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(notes.String(), "schema.registry.url") || strings.Count(notes.String(), "\n") != 1 {
		t.Errorf("notes: %q", notes)
	}
	a.shared.config = writeFile(t, "typo.properties", "a.b=1\nsasl.mechanims=PLAIN\n")
	if _, err := a.settings(); err == nil || !strings.Contains(err.Error(), "typo.properties:2: unknown property sasl.mechanims (did you mean sasl.mechanism") {
		t.Errorf("a typo: %v", err)
	}
}

func TestPrecedenceIsFlagsPropertiesFileEnvironment(t *testing.T) {
	a, _ := testApp(t)
	t.Setenv("OTTLA_BOOTSTRAP", "env:1")
	check := func(want string) {
		t.Helper()
		s, err := a.settings()
		if err != nil || s.bootstrap[0] != want {
			t.Errorf("got %v, %v, want %s", s, err, want)
		}
	}
	check("env:1")
	a.shared.config = writeFile(t, "c.properties", "bootstrap.servers=file:1")
	check("file:1")
	a.shared.properties = []string{"bootstrap.servers=prop:1"}
	check("prop:1")
	a.shared.bootstrap = "flag:1"
	check("flag:1")
	a, _ = testApp(t)
	check(defaultBootstrap)
}

func TestTheEnvironmentAloneTurnsNoSecurityOn(t *testing.T) {
	a, _ := testApp(t)
	for name, value := range map[string]string{"OTTLA_CA": "/ca", "OTTLA_CERT": "/c", "OTTLA_KEY": "/k", "OTTLA_USER": "u", "OTTLA_PASSWORD": "p"} {
		t.Setenv(name, value)
	}
	s, err := a.settings()
	if err != nil || s.security.tls || s.security.mechanism != "" {
		t.Fatalf("%+v, %v", s, err)
	}
	a.shared.tls, a.shared.sasl = true, "plain"
	s, err = a.settings()
	if err != nil {
		t.Fatal(err)
	}
	want := security{tls: true, ca: pemSource{file: "/ca"}, cert: pemSource{file: "/c"}, key: pemSource{file: "/k"}, mechanism: "PLAIN", user: "u", password: s.security.password}
	if s.security != want || s.security.password.reveal() != "p" {
		t.Errorf("got %+v", s.security)
	}
}

func TestSecurityFlagsThatDoNotAgreeAreUsageErrors(t *testing.T) {
	for want, set := range map[string]func(*sharedFlags){
		"--key needs --cert":        func(f *sharedFlags) { f.key = "k" },
		"--user needs --sasl":       func(f *sharedFlags) { f.user = "u" },
		"--password-file needs":     func(f *sharedFlags) { f.passwordFile = "p" },
		"needs a user":              func(f *sharedFlags) { f.sasl = "plain" },
		"needs a password":          func(f *sharedFlags) { f.sasl, f.user = "scram-sha-256", "u" },
		"needs a token":             func(f *sharedFlags) { f.sasl = "oauthbearer" },
		"expected plain, scram":     func(f *sharedFlags) { f.sasl = "gssapi" },
		"no such file or directory": func(f *sharedFlags) { f.sasl, f.user, f.passwordFile = "plain", "u", "/nowhere/p" },
	} {
		a, _ := testApp(t)
		set(&a.shared)
		_, err := a.settings()
		var usage *usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestK17NoVerbPrintsAPassword(t *testing.T) {
	a, _ := testApp(t)
	t.Setenv("OTTLA_PASSWORD", "hunter2")
	a.shared.sasl, a.shared.user = "plain", "u"
	s, err := a.settings()
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, *s); strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", verb, text)
		}
	}
	if pass, err := s.security.readPassword(); pass != "hunter2" || err != nil {
		t.Errorf("%q, %v", pass, err)
	}
}

func TestB068PasswordFilesAreReadAtEveryLogin(t *testing.T) {
	a, _ := testApp(t)
	file := writeFile(t, "token", "one\n")
	a.shared.sasl, a.shared.passwordFile = "oauthbearer", file
	s, err := a.settings()
	if err != nil {
		t.Fatal(err)
	}
	if pass, _ := s.security.readPassword(); pass != "one" {
		t.Errorf("%q", pass)
	}
	if err := os.WriteFile(file, []byte("two\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if pass, _ := s.security.readPassword(); pass != "two" {
		t.Errorf("%q", pass)
	}
}
