package consumer

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/ottla/ottla/internal/core/group"
	"github.com/ottla/ottla/kafka"
)

// Assignor is how the leader of a classic group divides partitions
// (partition.assignment.strategy).
type Assignor string

// The assignors, as in Kafka's Java client.
const (
	CooperativeSticky Assignor = group.CooperativeSticky // balanced, moves little, reads on what stays
	Sticky            Assignor = group.Sticky            // balanced, moves little
	RoundRobin        Assignor = group.RoundRobin        // deals all partitions out in turn
	Range             Assignor = group.Range             // runs of each topic's partitions
)

// Commits says when the offsets of a group are committed, and what of.
type Commits uint8

const (
	// CommitPolled commits by itself what was handed out and is finished: all
	// records of a Poll with the next Poll, of a range when it comes back, of a
	// handler of Run when it returns nil.
	CommitPolled Commits = iota
	// CommitMarked commits by itself what was marked: see [Consumer.Mark].
	CommitMarked
	// CommitManual commits only with [Consumer.Commit], [Group.Commit] and
	// [Group.CommitOffsets].
	CommitManual
)

// String is a name of the mode.
func (c Commits) String() string {
	if c > CommitManual {
		return fmt.Sprintf("commit mode %d", uint8(c))
	}
	return [...]string{"polled", "marked", "manual"}[c]
}

// GroupConfig makes a Consumer a member of a consumer group. Its zero value is
// none. With a group the partitions come from the group, and Assign, Add and
// Remove are refused.
type GroupConfig struct {
	ID         string   // group.id; empty = no group
	InstanceID string   // group.instance.id: a static member, which keeps its partitions over a restart
	Topics     []string // what to subscribe to at once; more with Subscribe. What brokers refuse of it (a right, a name) is an error of the leader's Poll in a classic group; the rest is read
	Pattern    string   // in place of Topics: a regular expression that the whole name of a topic matches

	// Protocol is the kind of group: [kafka.ClassicGroup], or
	// [kafka.ConsumerGroup] (KIP-848), where the brokers divide partitions. A
	// broker without it is a *kafka.VersionError; it is never changed silently.
	Protocol       kafka.GroupKind
	Assignors      []Assignor // classic: in order of preference; nil = cooperative sticky
	RackAware      bool       // classic: as the leader, give members what has a replica in their Config.Rack, after balance and before stickiness (KIP-881); RoundRobin does not
	ServerAssignor string     // group.remote.assignor, consumer protocol; empty = the brokers' choice

	SessionTimeout    time.Duration // session.timeout.ms; 0 = 45 s. The consumer protocol has the brokers' own for being thrown out
	HeartbeatInterval time.Duration // heartbeat.interval.ms; 0 = 3 s. The consumer protocol has the brokers' own
	RebalanceTimeout  time.Duration // how long the group waits for a member in a rebalance; 0 = 60 s
	RevokeTimeout     time.Duration // how long unfinished work may hold up a revocation; 0 = half the rebalance timeout
	ProcessingTimeout time.Duration // max.poll.interval.ms: the longest that work handed out may be unfinished; 0 = 5 min

	Start          Start         // of partitions without a committed offset; the zero value is the first offset of the log
	Commits        Commits       // zero = CommitPolled
	CommitInterval time.Duration // auto.commit.interval.ms; 0 = 5 s
	LeaveOnClose   bool          // a static member gives its place up when it is closed; others always do

	// OnAssigned is called when partitions were given, with what is committed for
	// them (Offset -1: nothing), before reading begins. It may Seek.
	OnAssigned func(c *Consumer, at map[kafka.TopicPartition]kafka.Commit)
	// OnRevoked is called before partitions are given up: work on them has ended
	// or had its time, and the member still owns them and may commit.
	OnRevoked func(c *Consumer, tps []kafka.TopicPartition)
	// OnLost is called when partitions went without notice; others may own them
	// already.
	OnLost func(c *Consumer, tps []kafka.TopicPartition, why error)
	// OnEvent is told what else happens. All four run one at a time on a goroutine
	// of their own, under no lock, and may call any method.
	OnEvent func(c *Consumer, e GroupEvent)

	Run RunConfig // for Consumer.Run
}

// withDefaults is a checked copy of the configuration.
func (g GroupConfig) withDefaults() (GroupConfig, error) {
	if g.ID == "" {
		if g.InstanceID != "" || len(g.Topics) > 0 || g.Pattern != "" {
			return g, &configError{"Group.ID", "is empty, and other fields of Group are not"}
		}
		return g, nil
	}
	for _, err := range []error{
		orDefault(&g.SessionTimeout, 45*time.Second, "Group.SessionTimeout"),
		orDefault(&g.HeartbeatInterval, min(3*time.Second, g.SessionTimeout/3), "Group.HeartbeatInterval"),
		orDefault(&g.RebalanceTimeout, time.Minute, "Group.RebalanceTimeout"),
		orDefault(&g.RevokeTimeout, g.RebalanceTimeout/2, "Group.RevokeTimeout"),
		orDefault(&g.ProcessingTimeout, 5*time.Minute, "Group.ProcessingTimeout"),
		orDefault(&g.CommitInterval, 5*time.Second, "Group.CommitInterval"),
		g.checkProtocol(), g.checkTimes(), g.Run.check(),
	} {
		if err != nil {
			return g, err
		}
	}
	if len(g.Assignors) == 0 {
		g.Assignors = []Assignor{CooperativeSticky}
	}
	g.Topics, g.Assignors = slices.Clone(g.Topics), slices.Clone(g.Assignors)
	return g, nil
}

func (g *GroupConfig) checkProtocol() error {
	switch {
	case g.Protocol != kafka.ClassicGroup && g.Protocol != kafka.ConsumerGroup:
		return &configError{"Group.Protocol", "is none that a consumer can speak: " + g.Protocol.String()}
	case g.Protocol == kafka.ConsumerGroup && len(g.Assignors) > 0:
		return &configError{"Group.Assignors", "is for classic groups; Group.Protocol is consumer, which has Group.ServerAssignor"}
	case g.Protocol == kafka.ConsumerGroup && g.RackAware:
		return &configError{"Group.RackAware", "is for classic groups; Group.Protocol is consumer, whose assignors are the brokers'"}
	case g.Protocol == kafka.ClassicGroup && g.ServerAssignor != "":
		return &configError{"Group.ServerAssignor", "is for Group.Protocol consumer; classic groups have Group.Assignors"}
	case g.Commits > CommitManual:
		return &configError{"Group.Commits", "is no mode: " + g.Commits.String()}
	case len(g.Topics) > 0 && g.Pattern != "":
		return &configError{"Group.Pattern", "and Group.Topics exclude each other"}
	}
	for _, a := range g.Assignors {
		if !slices.Contains(group.Assignors(), string(a)) {
			return &configError{"Group.Assignors", fmt.Sprintf("has %q, which is none of %v", a, group.Assignors())}
		}
	}
	_, err := compilePattern(g.Pattern)
	return err
}

func (g *GroupConfig) checkTimes() error {
	switch {
	case g.HeartbeatInterval >= g.SessionTimeout:
		return &configError{"Group.HeartbeatInterval", fmt.Sprintf("%v is not below Group.SessionTimeout, %v", g.HeartbeatInterval, g.SessionTimeout)}
	case g.RevokeTimeout > g.RebalanceTimeout:
		return &configError{"Group.RevokeTimeout", fmt.Sprintf("%v is above Group.RebalanceTimeout, %v", g.RevokeTimeout, g.RebalanceTimeout)}
	case max(g.SessionTimeout, g.RebalanceTimeout) > math.MaxInt32*time.Millisecond:
		return &configError{"Group", "has a timeout above 2^31-1 ms"}
	}
	return nil
}

// compilePattern makes a pattern that matches whole names; nil for none.
func compilePattern(expr string) (*regexp.Regexp, error) {
	if expr == "" {
		return nil, nil
	}
	re, err := regexp.Compile("^(?:" + expr + ")$")
	if err != nil {
		return nil, &configError{"Group.Pattern", "is no regular expression: " + err.Error()}
	}
	return re, nil
}

// machine is the part of the configuration that the machine needs.
func (g *GroupConfig) machine(rack string) group.Config {
	cfg := group.Config{
		Group: g.ID, InstanceID: g.InstanceID, Rack: rack, ServerAssignor: g.ServerAssignor,
		Session: g.SessionTimeout, Heartbeat: g.HeartbeatInterval, Rebalance: g.RebalanceTimeout,
		Consumer: g.Protocol == kafka.ConsumerGroup,
	}
	for _, a := range g.Assignors {
		cfg.Assignors = append(cfg.Assignors, string(a))
	}
	return cfg
}

// GroupEvent is something that happened to a member of a group.
type GroupEvent struct {
	Kind GroupEventKind
	kafka.TopicPartition
	Cause string        // Rebalancing: why
	Age   time.Duration // Stalled: since when the oldest work is unfinished; SlowCallback: how long it runs
	Err   error
}

// GroupEventKind says what happened.
type GroupEventKind uint8

// The kinds of events.
const (
	GroupRebalancing  GroupEventKind = iota // a round began: Cause
	GroupJoined                             // the member is stable
	GroupDoubtful                           // no heartbeat was confirmed for a session timeout: nothing is handed out
	GroupConfirmed                          // the membership is in no doubt any more
	GroupTrouble                            // something failed and is tried again: Err
	GroupOver                               // the member is over: Err, which Poll returns too
	GroupStalled                            // work is unfinished for half of ProcessingTimeout: TopicPartition, Age
	GroupSlowCallback                       // OnRevoked runs for half of RebalanceTimeout: Age
	GroupCommitFailed                       // an automatic commit was refused: TopicPartition, Err
	GroupSkipped                            // Run gave work up by its policy: TopicPartition, Err
)

// String names the kind.
func (k GroupEventKind) String() string {
	names := [...]string{"rebalancing", "joined", "doubtful", "confirmed", "trouble", "over", "stalled", "slow callback", "commit failed", "skipped"}
	if int(k) >= len(names) {
		return fmt.Sprintf("event %d", uint8(k))
	}
	return names[k]
}
