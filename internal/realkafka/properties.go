package realkafka

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// properties is a server.properties under construction: later values replace
// earlier ones in their place.
type properties struct {
	names  []string
	values map[string]string
}

func (p *properties) set(name, value string) {
	if p.values == nil {
		p.values = map[string]string{}
	}
	if _, known := p.values[name]; !known {
		p.names = append(p.names, name)
	}
	p.values[name] = value
}

// add reads lines of the form name=value. A {a,b} in a name stands for one
// line with each.
func (p *properties) add(lines string) {
	for line := range strings.Lines(lines) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found {
			continue
		}
		for _, n := range expand(name) {
			p.set(n, value)
		}
	}
}

// expand writes out every {a,b} of a name.
func expand(name string) []string {
	before, rest, found := strings.Cut(name, "{")
	if !found {
		return []string{name}
	}
	choices, after, _ := strings.Cut(rest, "}")
	var out []string
	for _, c := range strings.Split(choices, ",") {
		out = append(out, expand(before+c+after)...)
	}
	return out
}

func (p *properties) String() string {
	var b strings.Builder
	for _, n := range p.names {
		fmt.Fprintf(&b, "%s=%s\n", n, strings.ReplaceAll(p.values[n], `\`, `\\`))
	}
	return b.String()
}

// quick makes a broker that is small and does not wait. Names that a release
// does not know are ignored by it.
const quick = `
auto.create.topics.enable=false
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=300
group.initial.rebalance.delay.ms=0
group.streams.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=100
group.{consumer,streams,share}.min.session.timeout.ms=500
group.{consumer,streams,share}.session.timeout.ms=2000
group.{consumer,streams,share}.min.heartbeat.interval.ms=50
group.{consumer,streams,share}.heartbeat.interval.ms=200
group.share.{min.record.lock.duration.ms,record.lock.duration.ms}=1000
log.cleaner.backoff.ms=100
log.cleaner.dedupe.buffer.size=2097152
log.cleaner.threads=1
log.initial.task.delay.ms=100
log.retention.check.interval.ms=1000
log.segment.delete.delay.ms=100
offsets.retention.check.interval.ms=1000
transaction.abort.timed.out.transaction.cleanup.interval.ms=100
{num.network.threads,num.io.threads,background.threads}=2
num.replica.fetchers=1
queued.max.requests=100
`

// failover lets three brokers take over from each other in two to four seconds.
const failover = `
replica.{lag.time.max.ms,socket.timeout.ms}=3000
replica.{fetch.wait.max.ms,fetch.backoff.ms}=200
`

// single lays out the internal topics for one broker, triple for three. Nobody
// takes over from one broker, so a machine under load should not have it taken
// for dead.
const (
	single = `
broker.session.timeout.ms=9000
broker.heartbeat.interval.ms=500
offsets.topic.{replication.factor,num.partitions}=1
transaction.state.log.{replication.factor,min.isr,num.partitions}=1
share.coordinator.state.topic.{replication.factor,min.isr,num.partitions}=1
`
	triple = `
{offsets.topic,transaction.state.log,share.coordinator.state.topic}.replication.factor=3
{offsets.topic,transaction.state.log,share.coordinator.state.topic}.num.partitions=1
{transaction.state.log,share.coordinator.state.topic}.min.isr=2
replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector
`
)

// serverProperties renders the file of one broker. dir is the cluster's folder.
func serverProperties(dir string, s *state, n *node, v version) string {
	p := &properties{}
	if v.zooKeeper() {
		zooKeeperLines(p, s, n)
	} else {
		kraftLines(p, s, n)
	}
	p.set("log.dirs", n.data())
	p.add(quick)
	if len(s.Nodes) == 1 {
		p.add(single)
	} else {
		p.add(triple)
		p.add(failover)
		p.set("broker.rack", "r"+strconv.Itoa(n.ID))
	}
	if s.Options.Secure {
		secureLines(p, filepath.Join(dir, "certs"), s.Options)
	}
	for _, name := range sortedKeys(s.Options.Props) {
		p.set(name, s.Options.Props[name])
	}
	return p.String()
}

func zooKeeperLines(p *properties, s *state, n *node) {
	p.set("broker.id", strconv.Itoa(n.ID))
	p.set("zookeeper.connect", s.ZooKeeper.addr(zooKeeperPort))
	p.set("zookeeper.session.timeout.ms", "2000")
	p.set("listeners", Plaintext+"://"+n.addr(Plaintext))
	p.set("advertised.listeners", Plaintext+"://"+n.addr(Plaintext))
}

func kraftLines(p *properties, s *state, n *node) {
	var voters, listeners, protocols []string
	for _, o := range s.Nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", o.ID, o.addr(Controllers)))
	}
	for _, l := range s.Options.listeners() {
		listeners = append(listeners, l+"://"+n.addr(l))
		protocols = append(protocols, l+":"+protocol(l))
	}
	p.set("process.roles", "broker,controller")
	p.set("node.id", strconv.Itoa(n.ID))
	p.set("controller.quorum.voters", strings.Join(voters, ","))
	p.set("advertised.listeners", strings.Join(listeners, ","))
	p.set("listeners", strings.Join(append(listeners, Controllers+"://"+n.addr(Controllers)), ","))
	p.set("listener.security.protocol.map", strings.Join(append(protocols, Controllers+":PLAINTEXT"), ","))
	p.set("controller.listener.names", Controllers)
	p.set("inter.broker.listener.name", Plaintext)
}

// protocol is what Kafka calls the security protocol of a listener.
func protocol(listener string) string {
	switch listener {
	case Plaintext:
		return "PLAINTEXT"
	case SASLP, Reauth:
		return "SASL_PLAINTEXT"
	case SASLS:
		return "SASL_SSL"
	}
	return "SSL"
}

// secureLines sets up the listeners of Options.Secure.
func secureLines(p *properties, certs string, o Options) {
	for _, l := range o.listeners() {
		prefix := "listener.name." + strings.ToLower(l) + "."
		if strings.HasSuffix(protocol(l), "SSL") {
			p.add(prefix + "ssl.{keystore,truststore}.type=PEM")
			p.set(prefix+"ssl.keystore.location", serverPEM(certs, l))
			p.set(prefix+"ssl.truststore.location", certsIn(certs).CA)
		}
		if strings.HasPrefix(protocol(l), "SASL") {
			saslLines(p, prefix)
		}
	}
	p.set("listener.name.mtls.ssl.client.auth", "required")
	p.add("listener.name.reauth.{plain,scram-sha-256,scram-sha-512,oauthbearer}.connections.max.reauth.ms=4000")
	p.set("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
	p.set("super.users", "User:"+Admin().Name+";User:"+Alice().Name+";User:ANONYMOUS;User:CN=alice")
	p.set("delegation.token.secret.key", "a-secret-of-the-test")
	p.set("connection.failed.authentication.delay.ms", "0")
}

func saslLines(p *properties, prefix string) {
	const modules = "org.apache.kafka.common.security."
	plain := modules + `plain.PlainLoginModule required username="` + Admin().Name + `" password="` + Admin().Password + `"`
	for _, u := range users() {
		plain += fmt.Sprintf(" user_%s=%q", u.Name, u.Password)
	}
	p.set(prefix+"sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER")
	p.set(prefix+"plain.sasl.jaas.config", plain+";")
	p.add(prefix + "{scram-sha-256,scram-sha-512}.sasl.jaas.config=" + modules + "scram.ScramLoginModule required;")
	p.set(prefix+"oauthbearer.sasl.jaas.config", modules+`oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="`+Admin().Name+`";`)
}

// zooKeeperProperties renders the file of ZooKeeper.
func zooKeeperProperties(n *node) string {
	p := &properties{}
	p.set("dataDir", n.data())
	p.set("clientPort", strconv.Itoa(n.Ports[zooKeeperPort]))
	p.set("clientPortAddress", "127.0.0.1")
	p.set("admin.enableServer", "false")
	p.set("tickTime", "500") // allows sessions of 1 s and more
	return p.String()
}

// log4j is the file for releases that log through log4j 1 directly.
const log4j = `log4j.rootLogger=INFO, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %c{1} - %m%n
log4j.logger.kafka.server.KafkaConfig=WARN
`
