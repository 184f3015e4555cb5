// Package leader elects one leader for a role with nothing but a Kafka cluster,
// and lets the brokers enforce it: what a deposed leader writes is refused.
//
//	e, err := leader.Open(client, leader.Config{})
//	…
//	err = e.Run(ctx, "billing/nightly", func(ctx context.Context, t *leader.Term) error {
//		return work(ctx, t) // ends when the leadership does
//	})
//
// A role is led by whoever has the newest epoch of the transactional id with
// the role's name, and a lease in the topic __coordination_state. A leader
// renews the lease by small transactions; standbys follow the topic and take
// over when no renewal came for the length of the lease, in the order in which
// they registered. Members of other languages that keep to the same records
// take part.
//
// Three things are told apart. The token is the pair of producer id and epoch
// that brokers check. The term is a number that grows with every leadership;
// use it as the fencing number in other stores. The leadership's own clock ends
// it before the lease runs out, whatever the network does.
//
// An Elector serves any number of roles of a process over one client. All of
// its goroutines belong to it, and Close waits for them.
package leader
