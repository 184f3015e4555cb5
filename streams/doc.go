// Package streams is membership of Kafka Streams groups (KIP-1071): the broker
// assigns tasks, and this package holds the member's side of it, beside other
// members in Go or Java. It needs Kafka 4.2 or newer; static members and task
// offsets need 4.4.
//
// [Join] makes a [Member]. Its owner, the program that runs the tasks, ranges
// over [Member.Assignments] and after each [Snapshot]:
//
//   - if Lost: drops every task without a commit, and acknowledges Tasks{};
//   - else reconciles its [TaskTable] with Target.Update(), commits and closes
//     what was removed, creates what was added, and acknowledges
//     [TaskTable.Tasks].
//
// Nothing of a new task may be read before the acknowledgement, and a task that
// was given up must be committed before it. The coordinator waits that long
// before it hands the task to another member.
//
// [Describe], [List], [Delete], [GroupConfigs] and [SetGroupConfigs] look after
// groups and need no member.
package streams
