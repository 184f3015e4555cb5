package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// mechanismNames are the values of --sasl.
const mechanismNames = "plain, scram-sha-256, scram-sha-512 or oauthbearer"

// security is how a connection is protected and who is logged in.
type security struct {
	tls     bool
	ca      pemSource // certificate authorities, unset for the system's
	cert    pemSource // the client's certificate, and its key if key is unset
	key     pemSource
	tlsName string

	protocol     string // security.protocol, "" if not set
	mechanism    string // in Kafka's spelling; "" is none
	user         string
	password     secret
	passwordFile string
	tokenAuth    bool // SCRAM with a delegation token
}

// pemSource is PEM, in a file or inline.
type pemSource struct {
	file   string
	inline secret // may hold a key
}

func (p pemSource) unset() bool { return p.file == "" && p.inline == (secret{}) }

// read returns the PEM; what names it in errors.
func (p pemSource) read(what string) ([]byte, error) {
	if p.file == "" {
		return []byte(p.inline.reveal()), nil
	}
	data, err := os.ReadFile(p.file)
	if err != nil {
		return nil, usagef("%s: %v", what, err)
	}
	return data, nil
}

// name is the file, for errors.
func (p pemSource) name() string {
	if p.file == "" {
		return "the inline PEM"
	}
	return p.file
}

// principal names who the broker takes this client for, as far as that is known.
func (s *security) principal() string {
	const taken = "the principal that the broker takes this connection for "
	switch {
	case s.mechanism == "OAUTHBEARER":
		return taken + "(that of the token)"
	case s.tokenAuth:
		return taken + "(the owner of the delegation token)"
	case s.mechanism != "":
		return "User:" + s.user
	case !s.cert.unset():
		return taken + "(that of the certificate in " + s.cert.name() + ")"
	}
	return taken + "(no login was sent)"
}

// applyFlags lays the flags, and where they ask for it the environment, over
// the properties.
func (s *security) applyFlags(f *sharedFlags) error {
	if f.key != "" && f.cert == "" && os.Getenv("OTTLA_CERT") == "" {
		return usagef("--key needs --cert")
	}
	asked := s.tls || f.tls || f.ca != "" || f.cert != "" || f.tlsName != ""
	if asked {
		certSet := !s.cert.unset()
		s.tls = true
		s.ca = firstSource(f.ca, s.ca, os.Getenv("OTTLA_CA"))
		s.cert = firstSource(f.cert, s.cert, os.Getenv("OTTLA_CERT"))
		envKey := os.Getenv("OTTLA_KEY")
		if certSet && f.cert == "" {
			envKey = "" // it belongs to another certificate
		}
		s.key = firstSource(f.key, s.key, envKey)
		if f.tlsName != "" {
			s.tlsName = f.tlsName
		}
	}
	return s.applyLogin(f)
}

// firstSource is the flag's file, else what properties set, else the
// environment's file.
func firstSource(flag string, set pemSource, env string) pemSource {
	switch {
	case flag != "":
		return pemSource{file: flag}
	case !set.unset():
		return set
	default:
		return pemSource{file: env}
	}
}

// applyLogin takes the SASL flags.
func (s *security) applyLogin(f *sharedFlags) error {
	if f.sasl != "" {
		name, ok := mechanismName(f.sasl)
		if !ok {
			return usagef("--sasl %s: expected %s", f.sasl, mechanismNames)
		}
		s.mechanism = name
	} else if err := s.agree(); err != nil {
		return err
	}
	if s.mechanism == "" {
		for _, flag := range [][2]string{{"--user", f.user}, {"--password-file", f.passwordFile}} {
			if flag[1] != "" {
				return usagef("%s needs --sasl %s", flag[0], mechanismNames)
			}
		}
		return nil
	}
	if user := firstOf(f.user, s.user, os.Getenv("OTTLA_USER")); user != "" {
		s.user = user
	}
	if f.passwordFile != "" {
		s.passwordFile, s.password = f.passwordFile, secret{}
	}
	if s.passwordFile == "" && s.password == (secret{}) {
		s.password = newSecret(os.Getenv("OTTLA_PASSWORD"))
	}
	if s.user == "" && s.mechanism != "OAUTHBEARER" {
		return usagef("%s needs a user: --user NAME or OTTLA_USER", s.mechanism)
	}
	if s.password == (secret{}) && s.passwordFile == "" {
		what := "a password"
		if s.mechanism == "OAUTHBEARER" {
			what = "a token"
		}
		return usagef("%s needs %s: OTTLA_PASSWORD or --password-file FILE", s.mechanism, what)
	}
	_, err := s.readPassword()
	return err
}

// agree lets security.protocol decide whether sasl.mechanism counts, as it does
// for Java's clients.
func (s *security) agree() error {
	switch {
	case s.protocol == "PLAINTEXT" || s.protocol == "SSL":
		s.mechanism = ""
	case s.protocol != "" && s.mechanism == "":
		return usagef("security.protocol %s without sasl.mechanism means GSSAPI, which ottla does not have: expected %s", s.protocol, mechanismNames)
	}
	return nil
}

// firstOf is the first text that is not empty.
func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// mechanismName is Kafka's spelling of a value of --sasl.
func mechanismName(s string) (string, bool) {
	name := strings.ToUpper(s)
	return name, slices.Contains([]string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}, name)
}

// readPassword returns the password or token. A file is read at each login, so
// that a renewed token is seen.
func (s *security) readPassword() (string, error) {
	if s.passwordFile == "" {
		return s.password.reveal(), nil
	}
	data, err := os.ReadFile(s.passwordFile)
	if err != nil {
		return "", usagef("--password-file: %v", err)
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		return "", usagef("--password-file %s is empty", s.passwordFile)
	}
	return text, nil
}

// mechanisms are the SASL mechanisms for the client, none without a login.
func (s *security) mechanisms() []sasl.Mechanism {
	scramAuth := func(context.Context) (scram.Auth, error) {
		pass, err := s.readPassword()
		return scram.Auth{User: s.user, Pass: pass, IsToken: s.tokenAuth}, err
	}
	switch s.mechanism {
	case "PLAIN":
		return []sasl.Mechanism{plain.Plain(func(context.Context) (plain.Auth, error) {
			pass, err := s.readPassword()
			return plain.Auth{User: s.user, Pass: pass}, err
		})}
	case "SCRAM-SHA-256":
		return []sasl.Mechanism{scram.Sha256(scramAuth)}
	case "SCRAM-SHA-512":
		return []sasl.Mechanism{scram.Sha512(scramAuth)}
	case "OAUTHBEARER":
		return []sasl.Mechanism{oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := s.readPassword()
			return oauth.Auth{Token: token, Zid: s.user}, err
		})}
	}
	return nil
}

// tlsConfig is the TLS configuration, nil without TLS.
func (s *security) tlsConfig() (*tls.Config, error) {
	if !s.tls {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.tlsName}
	if !s.ca.unset() {
		data, err := s.ca.read("--ca")
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, usagef("--ca: %s holds no certificate in PEM%s", s.ca.name(), keystoreHint(data))
		}
	}
	if s.cert.unset() {
		return c, nil
	}
	pair, err := s.keyPair()
	if err != nil {
		return nil, err
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// keyPair reads the client's certificate and key.
func (s *security) keyPair() (tls.Certificate, error) {
	certs, err := s.cert.read("--cert")
	if err != nil {
		return tls.Certificate{}, err
	}
	key := certs
	from := s.cert.name()
	if !s.key.unset() {
		if key, err = s.key.read("--key"); err != nil {
			return tls.Certificate{}, err
		}
		from = s.key.name()
	}
	if encrypted(key) {
		return tls.Certificate{}, usagef("the key in %s is encrypted; `openssl pkcs8 -in KEY -out PLAINKEY` writes one that is not", from)
	}
	pair, err := tls.X509KeyPair(certs, key)
	if err != nil {
		if s.key.unset() && !strings.Contains(string(certs), "PRIVATE KEY") {
			return tls.Certificate{}, usagef("--cert %s holds no key: name one with --key FILE", s.cert.name())
		}
		return tls.Certificate{}, usagef("certificate %s with key %s: %s%s", s.cert.name(), from,
			strings.TrimPrefix(err.Error(), "tls: "), keystoreHint(certs))
	}
	return pair, nil
}

// encrypted reports whether the PEM holds a key under a password.
func encrypted(data []byte) bool {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return true
		}
	}
	return false
}

// keystoreHint recognises Java's and PKCS#12 key stores.
func keystoreHint(data []byte) string {
	switch {
	case len(data) > 3 && data[0] == 0xfe && data[1] == 0xed && data[2] == 0xfe && data[3] == 0xed:
		return " but a JKS key store; `keytool -exportcert -rfc` writes PEM"
	case len(data) > 1 && data[0] == 0x30 && data[1] >= 0x80:
		return " but DER or PKCS#12; `openssl pkcs12 -in FILE -nodes` writes PEM"
	}
	return ""
}

// securityProperties are the properties behind the security flags.
func securityProperties() []clientProperty {
	text := func(name string, field func(*security) *string) clientProperty {
		return clientProperty{name: name, set: func(s *settings, v string) error { *field(&s.security) = v; return nil }}
	}
	inline := func(name string, field func(*security) *pemSource) clientProperty {
		return clientProperty{name: name, set: func(s *settings, v string) error {
			*field(&s.security) = pemSource{inline: newSecret(inlinePEM(v))}
			return nil
		}}
	}
	return []clientProperty{
		{name: "security.protocol", set: setProtocol},
		{name: "sasl.mechanism", set: setMechanism},
		{name: "sasl.jaas.config", set: setJAAS},
		{name: "ssl.truststore.type", set: only("PEM", "pem", "convert the store with `keytool -exportcert -rfc`")},
		{name: "ssl.keystore.type", set: only("PEM", "pem", "convert the store with `openssl pkcs12 -nodes`")},
		text("ssl.truststore.location", func(s *security) *string { return &s.ca.file }),
		text("ssl.keystore.location", func(s *security) *string { return &s.cert.file }),
		inline("ssl.truststore.certificates", func(s *security) *pemSource { return &s.ca }),
		inline("ssl.keystore.certificate.chain", func(s *security) *pemSource { return &s.cert }),
		inline("ssl.keystore.key", func(s *security) *pemSource { return &s.key }),
		{name: "ssl.key.password", set: func(*settings, string) error {
			return errors.New("keys under a password are not read; `openssl pkcs8 -in KEY -out PLAINKEY` writes one that is not")
		}},
		{name: "ssl.truststore.password", set: nothing},
		{name: "ssl.keystore.password", set: nothing},
		{name: "ssl.protocol", set: tlsVersions},
		{name: "ssl.enabled.protocols", set: tlsVersions},
		{name: "ssl.endpoint.identification.algorithm", set: only("https", "HTTPS", "certificates are always checked; --tls-name sets the name to expect")},
	}
}

// nothing accepts any value: PEM needs no password of a store.
func nothing(*settings, string) error { return nil }

// tlsVersions accepts lists that leave TLS 1.2 or 1.3 in.
func tlsVersions(_ *settings, v string) error {
	for name := range strings.SplitSeq(v, ",") {
		if name = strings.TrimSpace(name); name == "TLSv1.2" || name == "TLSv1.3" || name == "TLS" {
			return nil
		}
	}
	return fmt.Errorf("%q: ottla speaks TLSv1.2 and TLSv1.3", v)
}

// inlinePEM puts the line ends back that a properties file may have lost.
func inlinePEM(v string) string {
	if strings.Contains(v, "\n") {
		return v
	}
	v = strings.NewReplacer("-----BEGIN ", "\n-----BEGIN ", "-----END ", "\n-----END ").Replace(v)
	var b strings.Builder
	for i, part := range strings.Split(v, "-----") {
		switch {
		case i%2 == 1: // a marker
			b.WriteString("-----" + part + "-----")
		case i%4 == 2: // between BEGIN and END
			b.WriteString("\n" + strings.Join(strings.Fields(part), "\n") + "\n")
		default:
			b.WriteString("\n")
		}
	}
	return b.String()
}

func setProtocol(s *settings, v string) error {
	name := strings.ToUpper(v)
	switch name {
	case "PLAINTEXT", "SASL_PLAINTEXT":
		s.security.tls = false
	case "SSL", "SASL_SSL":
		s.security.tls = true
	default:
		return fmt.Errorf("%q: expected PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", v)
	}
	s.security.protocol = name
	return nil
}

func setMechanism(s *settings, v string) error {
	name, ok := mechanismName(v)
	if !ok {
		return fmt.Errorf("%q: expected PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER", v)
	}
	s.security.mechanism = name
	return nil
}

// setJAAS takes the login of PLAIN and SCRAM.
func setJAAS(s *settings, v string) error {
	login, err := parseJAAS(v)
	if err != nil {
		return err
	}
	switch login.module {
	case "PlainLoginModule":
	case "ScramLoginModule":
		s.security.tokenAuth = strings.EqualFold(login.options["tokenauth"], "true")
	default:
		return fmt.Errorf("login module %s is not supported: PlainLoginModule and ScramLoginModule are", login.module)
	}
	s.security.user = login.options["username"]
	s.security.password = newSecret(login.options["password"])
	return nil
}
