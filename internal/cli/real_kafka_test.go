//go:build kafka

package cli

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ottla/ottla/internal/realkafka"
)

// onReal runs the command against the shared broker.
func onReal(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return run{args: args, env: []string{"OTTLA_BOOTSTRAP=" + real.Bootstrap()}, stdin: stdin}.do(t)
}

// topicFor makes a topic that belongs to one test.
func topicFor(t *testing.T, args ...string) string {
	t.Helper()
	name := strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	onReal(t, "", append([]string{"topics", "create", name}, args...)...).wantDone(t)
	return name
}

// sample is n lines of odd and even sizes.
func sample(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d %s ü\n", i, strings.Repeat("x", i%200))
	}
	return b.String()
}

func TestRealRoundTripIsByteForByte(t *testing.T) {
	topic := topicFor(t)
	text := sample(5000)
	onReal(t, text, "produce", topic).want(t, "")
	onReal(t, "", "consume", topic, "-e").want(t, text)
	onReal(t, "", "offsets", topic).want(t, topic+"\t0\t0\t5000\t5000\n")
}

var javaCodecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// TestRealJavaReadsEveryCodec has one Java consumer read what was written with
// each codec: a program of Java's takes seconds to start.
func TestRealJavaReadsEveryCodec(t *testing.T) {
	prefix := "java-reads-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	text := sample(500)
	for _, codec := range javaCodecs {
		topic := prefix + "-" + codec
		onReal(t, "", "topics", "create", topic).wantDone(t)
		onReal(t, text, "produce", topic, "-z", codec, "-H", "codec="+codec).want(t, "")
	}
	out, err := real.Tool("consumer.ConsoleConsumer", "--include", prefix+".*", "--from-beginning", "--max-messages", strconv.Itoa(500*len(javaCodecs)),
		"--timeout-ms", "120000", "--property", "print.headers=true")
	if err != nil {
		t.Error(err)
	}
	for _, codec := range javaCodecs {
		var got strings.Builder
		for line := range strings.Lines(out) {
			if value, ok := strings.CutPrefix(line, "codec:"+codec+"\t"); ok {
				got.WriteString(value)
			}
		}
		if got.String() != text {
			t.Errorf("%s: Java read %d bytes of %d", codec, got.Len(), len(text))
		}
		if dump, err := real.DumpLog(prefix+"-"+codec, 0); err != nil || !strings.Contains(dump, "compresscodec: "+codec) {
			t.Errorf("%v: no batch with codec %s in\n%.2000s", err, codec, dump)
		}
	}
}

func TestRealEveryCodecOfJavaIsRead(t *testing.T) {
	for _, codec := range javaCodecs {
		t.Run(codec, func(t *testing.T) {
			t.Parallel()
			topic, text := topicFor(t), sample(500)
			if _, err := real.ToolInput(text, "ConsoleProducer", "--topic", topic, "--compression-codec", codec); err != nil {
				t.Fatal(err)
			}
			res := onReal(t, "", "consume", topic, "-e")
			res.wantDone(t)
			// Java's console producer is free to choose the order of its batches,
			// not that of lines in the one partition.
			if res.stdout != text {
				t.Errorf("ottla read %d bytes of %d", len(res.stdout), len(text))
			}
		})
	}
}

func TestRealKeysGoWhereJavaPutsThem(t *testing.T) {
	ours, theirs := topicFor(t, "-p", "7"), topicFor(t, "-p", "7")
	var in strings.Builder
	for i := range 500 {
		fmt.Fprintf(&in, "key-%d:%d\n", i, i)
	}
	onReal(t, in.String(), "produce", ours, "-K", ":").want(t, "")
	if _, err := real.ToolInput(in.String(), "ConsoleProducer", "--topic", theirs, "--property", "parse.key=true", "--property", "key.separator=:"); err != nil {
		t.Fatal(err)
	}
	place := func(topic string) []string {
		res := onReal(t, "", "consume", topic, "-e", "-f", `%k %p %s\n`)
		res.wantDone(t)
		lines := strings.Split(strings.TrimSpace(res.stdout), "\n")
		slices.Sort(lines)
		return lines
	}
	if a, b := place(ours), place(theirs); len(a) != 500 || !slices.Equal(a, b) {
		t.Errorf("%d and %d records lie in other partitions", len(a), len(b))
	}
}

func TestRealTopicsFromCreationToDeletion(t *testing.T) {
	topic := topicFor(t, "-p", "2", "-c", "retention.ms=100000")
	onReal(t, "", "topics", "config", topic).want(t, "retention.ms\t100000\tdynamic_topic_config\n")
	onReal(t, "", "topics", "config", topic, "-c", "retention.ms=200000").want(t, "retention.ms\t200000\tdynamic_topic_config\n")
	onReal(t, "", "topics", "config", topic, "-c", "retention.mss=1").wantStatus(t, 1)
	onReal(t, "", "topics", "grow", topic, "-p", "4").wantDone(t)
	if res := onReal(t, "", "topics", "list"); !strings.Contains(res.stdout, topic+"\t4\t1\n") {
		t.Error(res.stdout)
	}
	onReal(t, "", "topics", "create", topic).wantError(t, 1, "exists already")
	onReal(t, "", "topics", "create", topic+"x", "-r", "5").wantError(t, 1, topic+"x is not created", "INVALID_REPLICATION_FACTOR")
	onReal(t, "", "topics", "delete", topic, "--yes").want(t, "deleted "+topic+"\n")
	onReal(t, "", "topics", "describe", topic).wantError(t, 1, "does not exist")
	info := decode[clusterInfo](t, onReal(t, "", "brokers", "--features", "--api-versions", "-o", "json"))
	if len(info.Brokers) != 1 || len(info.Features) == 0 || len(info.Brokers[0].APIVersions) < 40 {
		t.Errorf("%+v", info)
	}
	onReal(t, "", "request", "DescribeCluster").wantDone(t)
	onReal(t, "", "request", "ListGroups", "--version", "4").wantDone(t)
	onReal(t, "", "request", "Metadata", "--version", "1").wantDone(t)
}

func TestRealRecordTooLargeForTheBroker(t *testing.T) {
	topic := topicFor(t, "-c", "max.message.bytes=2000")
	noise := make([]byte, 4000)
	for i := range noise {
		noise[i] = byte(33 + (i*i*7919+i/3)%90)
	}
	in := "a\n" + base64.StdEncoding.EncodeToString(noise) + "\n"
	res := onReal(t, in, "produce", topic, "-z", "none", "-X", "linger.ms=0", "--keep-going")
	if res.status != 1 || !strings.Contains(res.stderr, "a record of 5336 bytes is too large for the broker: the topic's max.message.bytes is 2000") {
		t.Errorf("%+v", res)
	}
}

func TestRealSecureListeners(t *testing.T) {
	certs := real.Certs()
	alice := realkafka.Alice()
	at := func(listener, password string, args ...string) result {
		return run{
			args: append(append([]string{"brokers"}, args...), "-b", real.Listener(listener)),
			env:  []string{"OTTLA_PASSWORD=" + password}, stdin: "",
		}.do(t)
	}
	at(realkafka.TLS, "", "--ca", certs.CA).wantDone(t)
	at(realkafka.MTLS, "", "--ca", certs.CA, "--cert", certs.Cert, "--key", certs.Key).wantDone(t)
	for _, m := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		user := []string{"--sasl", m, "--user", alice.Name}
		at(realkafka.SASLP, alice.Password, user...).wantDone(t)
		at(realkafka.SASLS, alice.Password, append(user, "--ca", certs.CA)...).wantDone(t)
		at(realkafka.SASLP, "wrong", user...).wantError(t, 1, "alice", strings.ToUpper(m), "refused")
	}
	now := time.Now().Unix()
	token := func(iat, exp int64) string {
		part := base64.RawURLEncoding
		return part.EncodeToString([]byte(`{"alg":"none"}`)) + "." +
			part.EncodeToString(fmt.Appendf(nil, `{"sub":"admin","iat":%d,"exp":%d,"scope":"kafka"}`, iat, exp)) + "."
	}
	at(realkafka.SASLP, token(now-10, now+3600), "--sasl", "oauthbearer").wantDone(t)
	at(realkafka.SASLP, token(now-100, now-10), "--sasl", "oauthbearer").wantError(t, 1, "OAUTHBEARER", "refused", "invalid_token")

	at(realkafka.TLS, "").wantError(t, 1, "TLS answers there", "--tls")
	t.Run("B058", func(t *testing.T) { at(realkafka.Plaintext, "", "--tls").wantError(t, 1, "plaintext", "leave --tls") })
	at(realkafka.SASLP, "").wantError(t, 1, "--sasl")
	at(realkafka.TLS, "", "--ca", certs.ForeignCA).wantError(t, 1, "authority", "--ca FILE")
	at(realkafka.Foreign, "", "--ca", certs.CA).wantError(t, 1, "authority", "--ca FILE")
	at(realkafka.Expired, "", "--ca", certs.CA).wantError(t, 1, "out of its time")
	at(realkafka.WrongName, "", "--ca", certs.CA).wantError(t, 1, "another name", "wanted 127.0.0.1", "--tls-name")
	t.Run("B059", func(t *testing.T) {
		at(realkafka.MTLS, "", "--ca", certs.CA).wantError(t, 1, "TLS alert", "--cert FILE --key FILE")
		at(realkafka.MTLS, "", "--ca", certs.CA, "--cert", certs.ForeignCert, "--key", certs.ForeignKey).wantError(t, 1, "TLS alert", "authority that the broker trusts")
	})
}

func TestRealNotAuthorised(t *testing.T) {
	topic := topicFor(t)
	carol := realkafka.Carol()
	as := func(stdin string, args ...string) result {
		return run{
			args: append(args, "-b", real.Listener(realkafka.SASLP), "--sasl", "scram-sha-256", "--user", carol.Name),
			env:  []string{"OTTLA_PASSWORD=" + carol.Password}, stdin: stdin,
		}.do(t)
	}
	as("a\n", "produce", topic).wantError(t, 1, "User:carol is not authorised", "topic "+topic, "ACL")
	as("", "consume", topic, "-e").wantError(t, 1, "User:carol is not authorised", "topic "+topic)
	as("", "topics", "create", topic+"x").wantError(t, 1, "User:carol is not authorised", "create topic "+topic+"x")
}

func TestRealDemoLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	type summary struct {
		OK      bool
		Records struct{ Produced, Consumed, Lost, Duplicated int }
	}
	got := decode[summary](t, onReal(t, "", "demo", "-o", "json", "-b", real.Bootstrap()))
	if !got.OK || got.Records.Produced == 0 || got.Records.Lost+got.Records.Duplicated != 0 {
		t.Errorf("%+v", got)
	}
	if res := onReal(t, "", "topics", "list"); strings.Contains(res.stdout, "ottla-demo") {
		t.Errorf("a topic is left behind:\n%s", res.stdout)
	}
}

// TestRealMillionLinesThroughAKilledBroker is the acceptance run: every line
// comes back, in order per key, while a broker of three is killed and started
// again. OTTLA_ACCEPTANCE_LINES sets the size: 1,000,000 is the full one.
func TestRealMillionLinesThroughAKilledBroker(t *testing.T) {
	t.Parallel() // it waits for brokers most of the time
	lines := 200_000
	if text := os.Getenv("OTTLA_ACCEPTANCE_LINES"); text != "" {
		var err error
		if lines, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const keys, parts = 1000, 10
	c := realkafka.Start(t, realkafka.Options{Brokers: 3})
	env := []string{"OTTLA_BOOTSTRAP=" + c.Bootstrap()}
	run{args: []string{"topics", "create", "many", "-p", "6", "-r", "3", "-c", "min.insync.replicas=2"}, env: env}.do(t).wantDone(t)
	var in bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&in, "key-%d:%d %s\n", i%keys, i, strings.Repeat("v", i%100))
	}
	p := run{args: []string{"produce", "many", "-K", ":"}, env: env}.start(t)
	data := in.Bytes()
	for part := range parts {
		if part == 3 {
			if err := c.Kill(2); err != nil {
				t.Fatal(err)
			}
		}
		if part == 7 {
			if err := c.Restart(2); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.stdin.Write(data[len(data)*part/parts : len(data)*(part+1)/parts]); err != nil {
			t.Fatal(err)
		}
	}
	p.stdin.Close()
	p.wait(t).want(t, "")

	res := run{args: []string{"consume", "many", "-e", "-f", `%k:%s\n`}, env: env}.do(t)
	res.wantDone(t)
	next := map[string]int{} // by key: the line that comes next
	got := 0
	for line := range strings.Lines(res.stdout) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		k, _ := strconv.Atoi(strings.TrimPrefix(key, "key-"))
		want := k + next[key]*keys
		if text := fmt.Sprintf("%d %s", want, strings.Repeat("v", want%100)); value != text {
			t.Fatalf("%s: got %.40q, want %.40q: lost, doubled, out of order or changed", key, value, text)
		}
		next[key]++
		got++
	}
	if got != lines {
		t.Errorf("%d lines of %d came back", got, lines)
	}
}

func TestRealConsumeToTheEndPassesMarkersAndAbortedRecords(t *testing.T) {
	topic := topicFor(t)
	checkMarkers(t, []string{"OTTLA_BOOTSTRAP=" + real.Bootstrap()}, strings.Split(real.Bootstrap(), ","), topic)
}
