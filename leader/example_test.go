package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ottla/ottla"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/leader"
	"github.com/ottla/ottla/ottlatest"
)

// connect starts a cluster in this process and connects to it.
func connect(ctx context.Context) (*ottla.Client, func()) {
	brokers, err := ottlatest.Start(ottlatest.Config{})
	if err != nil {
		log.Fatal(err)
	}
	client, err := ottla.Connect(ctx, ottla.Config{Bootstrap: brokers.Bootstrap()})
	if err != nil {
		log.Fatal(err)
	}
	return client, func() { client.Close(); brokers.Close() }
}

// work is done by whoever leads, until ctx ends.
func work(context.Context, int64) error {
	fmt.Println("at work")
	return nil
}

func runNightly(ctx context.Context, client *ottla.Client) error {
	e, err := leader.Open(client, leader.Config{})
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Run(ctx, "billing/nightly", func(ctx context.Context, t *leader.Term) error {
		return work(ctx, t.Number())
	})
}

func ExampleElector_Run() {
	ctx := context.Background()
	client, stop := connect(ctx)
	defer stop()
	if err := runNightly(ctx, client); err != nil {
		log.Fatal(err)
	}
	// Output: at work
}

func ExampleElector_Campaign() {
	ctx := context.Background()
	client, stop := connect(ctx)
	defer stop()
	first, err := leader.Open(client, leader.Config{Member: "first", Lease: 3 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer first.Close()
	second, err := leader.Open(client, leader.Config{Member: "second", Lease: 3 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer second.Close()

	term, err := first.Campaign(ctx, "compactor")
	if err != nil {
		log.Fatal(err)
	}
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = second.Campaign(soon, "compactor")
	fmt.Println("second wins:", !errors.Is(err, leader.ErrAcquireTimeout))

	if err := term.Resign(ctx); err != nil {
		log.Fatal(err)
	}
	next, err := second.Campaign(ctx, "compactor")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("second leads:", next.Err() == nil)
	fmt.Println("terms grow:", next.Number() > term.Number())
	fmt.Println("first is over:", errors.Is(term.Err(), leader.ErrResigned))
	// Output:
	// second wins: false
	// second leads: true
	// terms grow: true
	// first is over: true
}

func ExampleElector_Verify() {
	ctx := context.Background()
	client, stop := connect(ctx)
	defer stop()
	e, err := leader.Open(client, leader.Config{Member: "a"})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	term, err := e.Campaign(ctx, "compactor")
	if err != nil {
		log.Fatal(err)
	}
	verdict, err := e.Verify(ctx, "compactor", term.Token())
	fmt.Println(verdict, err)
	state, err := e.Describe(ctx, "compactor")
	fmt.Println(state.Leader, state.Verdict, err)
	if err := term.Resign(ctx); err != nil {
		log.Fatal(err)
	}
	verdict, err = e.Verify(ctx, "compactor", term.Token())
	fmt.Println(verdict, err)
	// Output:
	// authoritative <nil>
	// a authoritative <nil>
	// superseded <nil>
}

func ExampleElector_Watch() {
	ctx := context.Background()
	client, stop := connect(ctx)
	defer stop()
	e, err := leader.Open(client, leader.Config{Member: "a"})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	term, err := e.Campaign(ctx, "compactor")
	if err != nil {
		log.Fatal(err)
	}
	led := false
	for state, err := range e.Watch(ctx, "compactor") {
		switch {
		case err != nil:
			log.Fatal(err)
		case state.Leader != "" && !led:
			led = true
			fmt.Println(state.Leader, "leads")
			go term.Resign(ctx)
		case state.Vacant() && led:
			fmt.Println("nobody leads")
			return
		}
	}
	// Output:
	// a leads
	// nobody leads
}

// overKgo lets an Elector work over a client of franz-go.
type overKgo struct{ *kgo.Client }

func (k overKgo) RequestBroker(ctx context.Context, id kafka.NodeID, req kmsg.Request, _ int16) (kmsg.Response, error) {
	return k.Broker(int(id)).Request(ctx, req)
}

// The client must be capped: its requests to write leases have to stay below
// KIP-890 part 2. One that is not is refused.
func ExampleKafka() {
	ctx := context.Background()
	brokers, err := ottlatest.Start(ottlatest.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer brokers.Close()
	try := func(opts ...kgo.Opt) {
		client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers.Bootstrap()...))...)
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close()
		e, err := leader.Open(overKgo{client}, leader.Config{})
		if err != nil {
			log.Fatal(err)
		}
		defer e.Close()
		term, err := e.Campaign(ctx, "compactor")
		if err != nil {
			fmt.Println("refused:", errors.Is(err, leader.ErrInvalidConfig))
			return
		}
		fmt.Println("leads:", term.Err() == nil)
	}
	try()
	capped := kversion.Stable()
	capped.SetMaxKeyVersion(0, 11) // Produce
	capped.SetMaxKeyVersion(24, 3) // AddPartitionsToTxn
	capped.SetMaxKeyVersion(26, 4) // EndTxn
	try(kgo.MaxVersions(capped))
	// Output:
	// refused: true
	// leads: true
}
