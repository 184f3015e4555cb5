// Package admin asks about a Kafka cluster and changes it: topics, configs,
// offsets, records, transactions, producers, groups.
//
// [New] makes an [Admin] on a [cluster.Cluster], whose connections it shares;
// [Admin.Groups] is its part about groups.
// A call about several items returns [Results], one for each item in the order
// asked, so that one item that fails takes nothing from the others; look at
// each Err, or at Results.Err for the first. Calls about one thing return a
// value and an error. A list that could not be had from every broker comes with
// a [*cluster.PartialError] that names those that are missing.
//
// A call ends with its context, without a deadline after a minute. Until then
// what failed without effect is repeated: at another broker, another
// controller, another leader. A change
// that may have been read by the broker is never sent twice; it ends as Done,
// NotDone or Unknown, see [OutcomeOf].
//
// A call that the brokers are too old for ends with a [*kafka.VersionError]
// that names the versions of both sides; nothing is sent then, and nothing is
// done in another way instead.
package admin
