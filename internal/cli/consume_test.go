package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ottla/ottla/ottlatest"
)

func TestConsumeFromAndTo(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 1}})
	for i, at := range []string{"1000", "2000", "3000", "4000"} {
		e.feed(fmt.Sprint(i), "produce", "t", "--timestamp", at).wantDone(t)
	}
	for args, want := range map[string]string{
		"-e":                          "0 1 2 3",
		"-o start -e":                 "0 1 2 3",
		"-o end -e":                   "",
		"-o 2 -e":                     "2 3",
		"-o 4 -e":                     "",
		"-o -3 -e":                    "1 2 3",
		"-o -99 -e":                   "0 1 2 3",
		"-o @3000 -e":                 "2 3",
		"-o @3001 -e":                 "3",
		"-o @1970-01-01T00:00:02Z -e": "1 2 3",
		"-o @-1h -e":                  "",
		"--until @3000":               "0 1",
		"--until @-1h":                "0 1 2 3",
		"-o 1 --until @4000 -e":       "1 2",
		"-c 2":                        "0 1",
		"-c 1 -o 3":                   "3",
		"-c 9 -e":                     "0 1 2 3",
	} {
		t.Run(args, func(t *testing.T) {
			res := e.ottla(append([]string{"consume", "t"}, strings.Fields(args)...)...)
			res.wantDone(t)
			if got := strings.Join(strings.Fields(res.stdout), " "); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	e.ottla("consume", "t", "-o", "5").wantError(t, 1, "t-0: offset 5 is not there", "the log holds 0 to 4", "-o 4", "-o start")
	e.ottla("consume", "u", "-e").wantError(t, 1, `topic "u" does not exist`)
	e.ottla("consume", "t", "-p", "1").wantError(t, 1, "no partition 1")
	for line, want := range map[string]string{
		"-o noon": "expected start, end", "-c -1": "number of records", "-p x": "0,1,4-7", "-f %q": "%q is not known",
		"--until soon": "RFC 3339", "--isolation none": "committed or uncommitted", "-f %s --json": "do not go together",
	} {
		e.ottla(append([]string{"consume", "t"}, strings.Fields(line)...)...).wantError(t, 2, want)
	}
}

func TestConsumePartitionsTopicsAndFormats(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 3, "u": 1}})
	for p := range 3 {
		e.feed(fmt.Sprintf("k%d:v%d\n", p, p), "produce", "t", "-p", fmt.Sprint(p), "-K", ":", "-H", "h=1", "--timestamp", "5").wantDone(t)
	}
	e.feed("x", "produce", "u").wantDone(t)
	e.ottla("consume", "t", "-e", "-p", "1", "-f", `%t %p %o %k %s %K %S %T %h %%\n`).want(t, "t 1 0 k1 v1 2 2 5 h=1 %\n")
	res := e.ottla("consume", "t", "u", "-e", "-p", "0", "-f", "%t%p ")
	res.wantDone(t)
	if got := strings.Fields(res.stdout); len(got) != 2 {
		t.Errorf("%q", got)
	}
	res = e.ottla("consume", "t", "-e", "-p", "0,2", "-f", "%p ")
	if strings.Count(res.stdout, "0") != 1 || strings.Count(res.stdout, "2") != 1 || strings.Contains(res.stdout, "1") {
		t.Errorf("%+v", res)
	}
	e.ottla("consume", "t", "-e", "-p", "0", "--json").want(t,
		`{"topic":"t","partition":0,"offset":0,"timestamp":5,"key":"k0","value":"v0","headers":[["h","1"]]}`+"\n")
}

func TestJSONGoesRoundFromConsumeToProduce(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"a": 3, "b": 3}})
	in := strings.Join([]string{
		`{"key":"k1","value":"v1","timestamp":1,"partition":2}`, `{"key":null,"value":null,"timestamp":2,"partition":0}`,
		`{"key":{"base64":"//4="},"value":{"base64":"AP8="},"timestamp":3,"partition":1,"headers":[["h",null],["h",""],["",{"base64":"/w=="}]]}`,
		`{"key":"","value":"","timestamp":4,"partition":2}`, `{"value":"no partition","timestamp":5}`,
	}, "\n")
	e.feed(in, "produce", "a", "--json").wantDone(t)
	dump := e.ottla("consume", "a", "-e", "--json")
	dump.wantDone(t)
	e.feed(dump.stdout, "produce", "b", "--json").wantDone(t)
	for p := range int32(3) {
		for i, r := range e.stored("b", p) {
			from := e.stored("a", p)[i]
			r.Topic = "a"
			if got, want := appendJSONRecord(nil, &r), appendJSONRecord(nil, &from); !bytes.Equal(got, want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
	}
	if n := strings.Count(dump.stdout, "\n"); n != 5 {
		t.Errorf("%d records", n)
	}
}

func TestConsumeWaitsForMoreUntilASignal(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 1}})
	e.feed("one\n", "produce", "t").wantDone(t)
	p := run{args: []string{"consume", "t"}, env: e.env()}.start(t)
	if got := p.line(t); got != "one" {
		t.Errorf("%q", got)
	}
	e.feed("two\n", "produce", "t").wantDone(t)
	if got := p.line(t); got != "two" {
		t.Errorf("%q", got)
	}
	res := p.stop(t)
	if res.status != 130 || res.stderr != "ottla: interrupted: 2 records, 6 B read\n" {
		t.Errorf("%+v", res)
	}
}

func TestConsumeUntilATimeToCome(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 2}})
	e.feed("now\n", "produce", "t", "-p", "0").wantDone(t)
	e.ottla("consume", "t", "--until", "@+1s").want(t, "now\n")
	e.feed("later\n", "produce", "t", "-p", "0", "--timestamp", fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())).wantDone(t)
	e.ottla("consume", "t", "-p", "0", "--until", "@+30m").want(t, "now\n")
}

func TestTheReaderOfConsumeMayGoAway(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 1}})
	e.feed(strings.Repeat("some text\n", 100_000), "produce", "t").wantDone(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := run{args: []string{"consume", "t"}, env: e.env()}.command(t)
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = w, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := io.ReadFull(r, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := cmd.Wait(); err != nil || stderr.String() != "" {
		t.Errorf("%v: %s", err, stderr.String())
	}
}

func TestADeletedTopicEndsConsume(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 1}})
	e.feed("one\n", "produce", "t").wantDone(t)
	p := run{args: []string{"consume", "t"}, env: e.env()}.start(t)
	p.line(t)
	if err := e.DeleteTopic("t"); err != nil {
		t.Fatal(err)
	}
	res := p.wait(t)
	res.wantError(t, 1, "topic t was deleted while partition 0 was read", "nothing of it exists now")
}

func TestEveryCodecGoesRound(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 1}})
	var want strings.Builder
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		text := strings.Repeat(codec+"\n", 1000)
		want.WriteString(text)
		e.feed(text, "produce", "t", "-z", codec).wantDone(t)
	}
	e.ottla("consume", "t", "-e").want(t, want.String())
}

func TestAMillionLinesGoRound(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 50_000
	}
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 1}})
	var in bytes.Buffer
	for i := range n {
		fmt.Fprintln(&in, i)
	}
	e.feed(in.String(), "produce", "t").want(t, "")
	if res := e.ottla("consume", "t", "-e"); res.stdout != in.String() || res.stderr != "" {
		got, want := strings.Split(res.stdout, "\n"), strings.Split(in.String(), "\n")
		at := 0
		for at < len(got)-1 && at < len(want)-1 && got[at] == want[at] {
			at++
		}
		t.Errorf("%d bytes came back of %d; line %d is %q, and then %q; %s", len(res.stdout), in.Len(), at, got[at], got[at+1:min(at+4, len(got))], res.stderr)
	}
}
