package streams

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	core "github.com/ottla/ottla/internal/core/streams"
)

// Kafka is what this package needs of a client: a *cluster.Cluster has it.
// Members and other users may share one.
type Kafka interface {
	// Request sends a request to the broker or brokers that it is for.
	kmsg.Requestor
	// RequestCoordinator sends a request to the coordinator of a group, at the
	// version that req is set to, or fails without sending it. It makes one
	// attempt and hides no error code.
	RequestCoordinator(ctx context.Context, group string, req kmsg.Request) (kmsg.Response, error)
	// ForgetCoordinator has the next use look the coordinator up.
	ForgetCoordinator(group string)
	// CoordinatorVersions is the range of versions of an API that the
	// coordinator of a group speaks; ok is false if it does not have the API.
	CoordinatorVersions(ctx context.Context, group string, key int16) (lo, hi int16, ok bool, err error)
	// FinalizedFeature is the level of a feature; ok is false if there is none.
	FinalizedFeature(ctx context.Context, name string) (level int16, ok bool, err error)
}

// The nouns of a Streams group.
type (
	// TaskID names a task: one partition number of one subtopology, such as 0_3.
	TaskID = core.TaskID
	// Tasks are complete: what is in none of the lists is not held.
	Tasks = core.Tasks
	// Update are lists as a broker sends them: nil = unchanged, empty = none.
	Update = core.Update
	// Role is how a member holds a task.
	Role = core.Role
	// Assignment is one task and how it is held.
	Assignment = core.Assignment
	// TaskTable is the tasks that a program runs. The zero value is empty.
	TaskTable = core.TaskTable
	// Transition is one step that TaskTable.Reconcile asks for.
	Transition = core.Transition
	// TransitionKind is what a Transition does.
	TransitionKind = core.TransitionKind
	// Topology is what a group processes.
	Topology = core.Topology
	// Subtopology is a part of a Topology whose tasks run by themselves.
	Subtopology = core.Subtopology
	// InternalTopic is a topic that the broker creates for the group.
	InternalTopic = core.InternalTopic
	// Snapshot is what a member knows of its place in the group; immutable.
	Snapshot = core.Snapshot
	// Status is one thing that the coordinator says about the group.
	Status = core.Status
	// StatusCode is the number of a Status.
	StatusCode = core.StatusCode
	// Endpoint is where others reach a member (application.server).
	Endpoint = core.Endpoint
	// EndpointPartitions is what one member with an Endpoint reads.
	EndpointPartitions = core.EndpointPartitions
	// State is where a member stands.
	State = core.State
	// LeaveMode says how a member leaves its group.
	LeaveMode = core.LeaveMode
)

// How a member holds a task.
const (
	Active  = core.Active  // reads and processes
	Standby = core.Standby // follows the changelogs only
	Warmup  = core.Warmup  // as Standby, to become active
)

// What a transition does.
const (
	Removed     = core.Removed     // the task is given up
	RoleChanged = core.RoleChanged // the task stays in another role
	Added       = core.Added       // the task is new
)

// Where a member stands.
const (
	Joining       = core.Joining       // the join is on its way
	Reconciling   = core.Reconciling   // the owner has to take a target over
	Acknowledging = core.Acknowledging // it did; the heartbeat that says so is due
	Stable        = core.Stable        // nothing is to be done
	Fenced        = core.Fenced        // the tasks are lost; the owner has to acknowledge it
	Leaving       = core.Leaving       // the leave is on its way
	Stale         = core.Stale         // left by itself, until the owner calls Touch
	Left          = core.Left          // over
	Failed        = core.Failed        // over by an error
)

// How a member leaves.
const (
	LeaveAuto        = core.LeaveAuto        // LeaveGroup for dynamic members, LeaveTemporarily for static ones
	LeaveGroup       = core.LeaveGroup       // for good: the tasks move at once
	LeaveTemporarily = core.LeaveTemporarily // static members only: the tasks wait until the session ends
	Remain           = core.Remain           // nothing is sent: the session ends by itself
)

// What coordinators say about a group.
const (
	StaleTopology                = core.StaleTopology                // this member's topology epoch is below the group's
	MissingSourceTopics          = core.MissingSourceTopics          // a source topic does not exist
	IncorrectlyPartitionedTopics = core.IncorrectlyPartitionedTopics // numbers of partitions do not fit
	MissingInternalTopics        = core.MissingInternalTopics        // internal topics are being created
	ShutdownApplication          = core.ShutdownApplication          // some member asked for it
	AssignmentDelayed            = core.AssignmentDelayed            // the initial delay or the assignment interval is running
	MissingClientTags            = core.MissingClientTags            // a tag of the rack-aware assignment is missing
)

// The typed errors, for errors.As.
type (
	// ConfigError is a setting that Join refuses.
	ConfigError = core.ConfigError
	// UnsupportedError is a cluster that lacks what the call needs.
	UnsupportedError = core.UnsupportedError
	// BrokerError is an error code that a broker answered; errors.Is matches the
	// value of package kerr.
	BrokerError = core.BrokerError
	// GroupTypeError is a name under which there is no Streams group.
	GroupTypeError = core.GroupTypeError
	// MissingSourceTopicsError is a group whose sources did not appear in time.
	MissingSourceTopicsError = core.MissingSourceTopicsError
	// PartitioningError is a group whose topics do not fit its topology.
	PartitioningError = core.PartitioningError
	// ProtocolError is an answer that no coordinator should give.
	ProtocolError = core.ProtocolError
	// TaskError is a task that cannot be meant.
	TaskError = core.TaskError
	// ConflictError is a task that stands twice.
	ConflictError = core.ConflictError
	// FailedError is a call that got no answer in any of its tries.
	FailedError = core.FailedError
)

// Errors, for errors.Is.
var (
	// ErrStaleAssignment refuses an acknowledgement of a snapshot that a loss or
	// a later acknowledgement overtook. Nothing changed by it.
	ErrStaleAssignment = core.ErrStaleAssignment
	// ErrNotTouched is why a member left by itself: see Config.PollInterval.
	ErrNotTouched = core.ErrNotTouched
)

// ParseTaskID reads the text form of a task, such as 0_3. Its error is a
// [*TaskError].
func ParseTaskID(s string) (TaskID, error) { return core.ParseTaskID(s) }
