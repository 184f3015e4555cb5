package streams_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/ottlatest"
	"github.com/ottla/ottla/streams"
)

// start is a cluster in memory with a topic, and a client of it.
func start() (*cluster.Cluster, func()) {
	k, err := ottlatest.Start(ottlatest.Config{Topics: map[string]int{"orders": 2}, Streams: ottlatest.Streams{InitialDelay: -1}})
	if err != nil {
		log.Fatal(err)
	}
	c, err := cluster.Connect(context.Background(), k.ClientConfig())
	if err != nil {
		log.Fatal(err)
	}
	return c, func() { c.Close(); k.Close() }
}

var topology = streams.Topology{Subtopologies: []streams.Subtopology{{ID: "0", Sources: []string{"orders"}}}}

func ExampleJoin() {
	client, stop := start()
	defer stop()
	ctx := context.Background()
	m, err := streams.Join(ctx, client, streams.Config{Group: "app", Topology: topology})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	var table streams.TaskTable
	for s, err := range m.Assignments(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		steps, err := table.Reconcile(s.Target.Update())
		if err != nil {
			log.Fatal(err)
		}
		for _, step := range steps {
			fmt.Println(step.Kind, step.Task)
		}
		if err := m.Acknowledge(ctx, s, table.Tasks()); err != nil {
			log.Fatal(err)
		}
		break
	}
	fmt.Println(m.Leave(ctx))
	// Output:
	// added 0_0
	// added 0_1
	// <nil>
}

func ExampleTaskTable_Reconcile() {
	var table streams.TaskTable
	task := streams.TaskID{Subtopology: "0", Partition: 3}
	for _, u := range []streams.Update{
		{Standby: []streams.TaskID{task}},
		{Standby: []streams.TaskID{}, Active: []streams.TaskID{task}},
		{Active: []streams.TaskID{}},
	} {
		steps, err := table.Reconcile(u)
		fmt.Println(steps[0].Kind, steps[0].Task, steps[0].From, steps[0].To, err)
	}
	// Output:
	// added 0_3 standby standby <nil>
	// role changed 0_3 standby active <nil>
	// removed 0_3 active active <nil>
}

func ExampleDescribe() {
	client, stop := start()
	defer stop()
	ctx := context.Background()
	m, err := streams.Join(ctx, client, streams.Config{Group: "app", Topology: topology, MemberID: "first"})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	g, err := streams.Describe(ctx, client, "app", streams.DescribeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, member := range g.Members {
		fmt.Println(g.Group, g.State, member.ID, member.Tasks.Active)
	}
	// Output: app Stable first [0_0 0_1]
}

func ExampleDelete() {
	client, stop := start()
	defer stop()
	ctx := context.Background()
	m, err := streams.Join(ctx, client, streams.Config{Group: "app", Topology: topology})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(streams.Delete(ctx, client, "app", true))
	if err := m.Leave(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(streams.Delete(ctx, client, "app", true))
	// Output:
	// ottla: streams: group app: NON_EMPTY_GROUP
	// <nil>
}

func ExampleSetGroupConfigs() {
	client, stop := start()
	defer stop()
	ctx := context.Background()
	if err := streams.SetGroupConfigs(ctx, client, "app", map[string]string{"num.standby.replicas": "1"}); err != nil {
		log.Fatal(err)
	}
	configs, err := streams.GroupConfigs(ctx, client, "app")
	fmt.Println(configs["num.standby.replicas"], err)
	groups, err := streams.List(ctx, client)
	fmt.Println(len(groups), err)
	// Output:
	// 1 <nil>
	// 0 <nil>
}

func ExampleFixed() {
	f := streams.Fixed(topology, streams.Tasks{Active: []streams.TaskID{{Subtopology: "0", Partition: 1}}})
	fmt.Println(f.Snapshot().Target)
	// Output: A[0_1] S[] W[]
}
