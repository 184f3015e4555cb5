package realkafka

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

// drawn is a cluster with ports and folders that are always the same.
func drawn(t *testing.T, o Options) (*state, version) {
	t.Helper()
	o, v, err := o.settle()
	if err != nil {
		t.Fatal(err)
	}
	s := &state{Name: "drawn", Options: o, ClusterID: "AAAAAAAAAAAAAAAAAAAAAQ"}
	port := 10000
	next := func() int { port++; return port }
	for id := 1; id <= o.Brokers; id++ {
		n := &node{ID: id, Dir: fmt.Sprintf("/clusters/drawn/broker-%d", id), Ports: map[string]int{}}
		for _, l := range append(o.listeners(), Controllers) {
			n.Ports[l] = next()
		}
		s.Nodes = append(s.Nodes, n)
	}
	if v.zooKeeper() {
		s.ZooKeeper = &node{Dir: "/clusters/drawn/zookeeper", Ports: map[string]int{zooKeeperPort: next()}}
	}
	return s, v
}

func TestServerProperties(t *testing.T) {
	cases := []struct {
		file string
		o    Options
		id   int
	}{
		{"one.properties", Options{Version: "4.4.0"}, 1},
		{"three.properties", Options{Version: "4.4.0", Brokers: 3}, 2},
		{"secure.properties", Options{Version: "4.4.0", Secure: true}, 1},
		{"zookeeper.properties", Options{Version: "2.8.2"}, 1},
		{"props.properties", Options{Version: "3.3.2", Props: map[string]string{"auto.create.topics.enable": "true", "a.new": `C:\x`}}, 1},
	}
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			s, v := drawn(t, c.o)
			golden(t, c.file, serverProperties("/clusters/drawn", s, s.Nodes[c.id-1], v))
		})
	}
	s, _ := drawn(t, Options{Version: "2.8.2"})
	golden(t, "zk-server.properties", zooKeeperProperties(s.ZooKeeper))
}

// TestClassPathPerRelease looks at what each line of releases needs: the Scala
// of its artifact and the repairs that let it run on a current Java.
func TestClassPathPerRelease(t *testing.T) {
	cases := []struct {
		release string
		want    []string
		java    int
		zk      bool
	}{
		{"4.4.0", []string{"kafka_2.13:4.4.0", "slf4j-simple:1.7.36", "kafka-tools:4.4.0"}, 17, false},
		{"4.0.2", []string{"kafka_2.13:4.0.2", "slf4j-simple:1.7.36", "kafka-tools:4.0.2"}, 17, false},
		{"3.9.2", []string{"kafka_2.13:3.9.2", "slf4j-simple:1.7.36", "kafka-tools:3.9.2"}, 8, false},
		{"3.3.2", []string{"kafka_2.13:3.3.2", "slf4j-simple:1.7.36", "kafka-tools:3.3.2"}, 8, false},
		{"2.8.2", []string{"kafka_2.13:2.8.2", "slf4j-simple:1.7.36"}, 8, true},
		{"2.3.1", []string{"kafka_2.12:2.3.1", "slf4j-simple:1.7.36", "zookeeper:3.5.9"}, 8, true},
		{"2.1.1", []string{"kafka_2.12:2.1.1", "slf4j-simple:1.7.36", "zookeeper:3.5.9"}, 8, true},
		{"1.1.1", []string{"kafka_2.12:1.1.1", "slf4j-simple:1.7.36", "zookeeper:3.5.9"}, 8, true},
		{"0.11.0.3", []string{"kafka_2.11:0.11.0.3", "slf4j-simple:1.7.36", "zookeeper:3.5.9", "jaxb-api:2.3.1"}, 8, true},
		{"0.10.2.2", []string{"kafka_2.11:0.10.2.2", "slf4j-simple:1.7.36", "zookeeper:3.5.9", "jaxb-api:2.3.1"}, 8, true},
	}
	for _, c := range cases {
		t.Run(c.release, func(t *testing.T) {
			v, err := parseVersion(c.release)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range artifacts(v) {
				got = append(got, a.name+":"+a.version)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("artifacts %v, want %v", got, c.want)
			}
			if v.java() != c.java || v.zooKeeper() != c.zk {
				t.Errorf("Java %d, ZooKeeper %v; want %d, %v", v.java(), v.zooKeeper(), c.java, c.zk)
			}
			if n := strings.Count(pom(v), "<dependency>"); n != len(c.want) {
				t.Errorf("the pom names %d dependencies, want %d:\n%s", n, len(c.want), pom(v))
			}
		})
	}
}

// TestBrokerProgramPerRelease looks at the command line of each kind of node.
func TestBrokerProgramPerRelease(t *testing.T) {
	for release, want := range map[string]string{
		"4.4.0":    "kafka.Kafka",
		"0.11.0.3": "-Dlog4j.configuration=file:/clusters/drawn/broker-1/log4j.properties",
	} {
		s, v := drawn(t, Options{Version: release})
		i := install{version: v, java: java{path: "java", major: 17}, dir: t.TempDir()}
		args := i.brokerJVM(s.Nodes[0]).args
		if !slices.Contains(args, want) {
			t.Errorf("%s: %q is missing in %v", release, want, args)
		}
		if last := args[len(args)-1]; last != s.Nodes[0].config() {
			t.Errorf("%s: the last argument is %q, by which a broker is known again", release, last)
		}
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-XX:SharedArchiveFile") }) {
			t.Errorf("%s: an archive that is not there is used: %v", release, args)
		}
		if err := os.WriteFile(i.archive(), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if args := i.brokerJVM(s.Nodes[0]).args; !slices.Contains(args, "-XX:SharedArchiveFile="+i.archive()) {
			t.Errorf("%s: the archive is not used: %v", release, args)
		}
	}
	s, v := drawn(t, Options{Version: "2.8.2"})
	args := install{version: v}.brokerJVM(s.ZooKeeper).args
	if !slices.Contains(args, "org.apache.zookeeper.server.quorum.QuorumPeerMain") {
		t.Errorf("ZooKeeper's program is %v", args)
	}
}

func TestExpand(t *testing.T) {
	got := expand("{a,b}.x.{c,d}")
	if want := []string{"a.x.c", "a.x.d", "b.x.c", "b.x.d"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestVersions(t *testing.T) {
	t.Setenv(VersionEnv, "")
	if v, err := parseVersion(""); err != nil || v.text != DefaultVersion {
		t.Errorf("the default is %v (%v)", v, err)
	}
	t.Setenv(VersionEnv, "3.9.2")
	if v, err := parseVersion(""); err != nil || v.text != "3.9.2" {
		t.Errorf("%s is not honoured: %v (%v)", VersionEnv, v, err)
	}
	if v, err := parseVersion("4.0.2"); err != nil || v.text != "4.0.2" {
		t.Errorf("a version that is asked for loses against %s: %v (%v)", VersionEnv, v, err)
	}
	for _, bad := range []string{"latest", "4", "4.4", "../4.4.0", "0.9.0.1", "4.4.0 "} {
		if _, err := parseVersion(bad); err == nil {
			t.Errorf("%q passes for a version", bad)
		}
	}
}

func TestOptionsThatAReleaseDoesNotTake(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Version: "4.4.0", Brokers: 2}, "1 or 3 brokers"},
		{Options{Version: "3.8.1", Brokers: 3}, "one plaintext broker only"},
		{Options{Version: "2.8.2", Secure: true}, "one plaintext broker only"},
		{Options{Version: "3.3.2", Features: map[string]int{"group.version": 0}}, "one plaintext broker only"},
	} {
		if _, _, err := c.o.settle(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
}

// TestFeaturesAreCompared: a level that was asked for must be met exactly, a
// level that the release has by itself at least.
func TestFeaturesAreCompared(t *testing.T) {
	all := func() map[string]int {
		return map[string]int{"transaction.version": 2, "group.version": 1, "share.version": 2, "streams.version": 1, "metadata.version": 33}
	}
	with := func(name string, level int) map[string]int { m := all(); m[name] = level; return m }
	for _, c := range []struct {
		name string
		o    Options
		got  map[string]int
		ok   bool
	}{
		{"defaults", Options{}, all(), true},
		{"a template without its checkpoint", Options{}, map[string]int{"metadata.version": 33}, false},
		{"asked and met", Options{Features: map[string]int{"transaction.version": 1}}, with("transaction.version", 1), true},
		{"asked and more", Options{Features: map[string]int{"transaction.version": 1}}, all(), false},
		{"switched off", Options{Features: map[string]int{"streams.version": 0}}, with("streams.version", 0), true},
		{"switched off and on", Options{Features: map[string]int{"streams.version": 0}}, all(), false},
		{"an older release", Options{Release: "3.9"}, map[string]int{"metadata.version": 21}, true},
	} {
		c.o.Version = "4.4.0"
		o, v, err := c.o.settle()
		if err != nil {
			t.Fatal(err)
		}
		if err := o.checkFeatures(v, c.got); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTemplateNamesDiffer(t *testing.T) {
	seen := map[string]Options{}
	for _, o := range []Options{
		{}, {Secure: true}, {Release: "4.0"}, {Features: map[string]int{"group.version": 0}}, {Features: map[string]int{"group.version": 1}},
	} {
		name := o.formatting().name()
		if other, taken := seen[name]; taken {
			t.Errorf("%+v and %+v share the template %s", o, other, name)
		}
		seen[name] = o
	}
	a, _, _ := Options{Version: "4.4.0", Features: map[string]int{}}.settle()
	if _, shared := seen[a.formatting().name()]; !shared {
		t.Error("no features and an empty map of features have two templates")
	}
}
