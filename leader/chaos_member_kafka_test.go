//go:build kafka

package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// memberEnv has the memberConfig of a process that is a member of the chaos
// and no test.
const memberEnv = "OTTLA_TEST_MEMBER"

// memberConfig is what the test tells a member.
type memberConfig struct {
	Member    string
	Roles     []string
	Topic     string
	Bootstrap []string
	Gate      string // where the way to the brokers begins
	HandOver  bool   // it resigns now and then
}

// beMember is a process of the chaos: it leads whichever roles it wins, and
// says on stdout what it did. It ends when stdin does, or a bit after the test
// went without that.
func beMember(config string) int {
	var cfg memberConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	m := &member{memberConfig: cfg}
	if err := m.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, cfg.Member, err)
		return 1
	}
	return 0
}

type member struct {
	memberConfig
	mu sync.Mutex // of stdout
}

// say writes one line in one piece.
func (m *member) say(args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Println(args...)
}

func (m *member) run(ctx context.Context) error {
	cl := m.connect(ctx)
	if cl == nil {
		return nil // asked to end before it was connected
	}
	defer cl.Close()
	e, err := Open(cl, Config{Member: m.Member, Lease: 6 * time.Second, RequestTimeout: 3 * time.Second})
	if err != nil {
		return err
	}
	defer e.Close()
	var wg sync.WaitGroup
	for _, role := range m.Roles {
		wg.Add(1)
		go func() {
			defer wg.Done()
			err := e.Run(ctx, role, m.work)
			for err == nil && ctx.Err() == nil { // it has handed over
				err = e.Run(ctx, role, m.work)
			}
			if ctx.Err() == nil {
				m.say("ended", role, err)
			}
		}()
	}
	wg.Wait()
	return nil
}

// connect tries until the brokers can be reached: it may begin while it is cut
// off. It gives nil once ctx has ended.
func (m *member) connect(ctx context.Context) *cluster.Cluster {
	for ctx.Err() == nil {
		cl, err := cluster.Connect(ctx, cluster.Config{Bootstrap: m.Bootstrap, RequestTimeout: 3 * time.Second, Dial: m.dial})
		if err == nil {
			return cl
		}
		_ = task.Sleep(ctx, 100*time.Millisecond)
	}
	return nil
}

// dial goes through the gate, which is told where to.
func (m *member) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, m.Gate)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(c, addr); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// work appends (term, n) through the bound producer as long as the leadership
// lasts.
func (m *member) work(ctx context.Context, t *Term) error {
	m.say("leads", t.Role(), t.Number())
	for n := 1; ctx.Err() == nil; n++ {
		err := t.Transact(ctx, func(ctx context.Context, tx *producer.Tx) error {
			_, err := tx.Append(ctx, kafka.Record{Topic: m.Topic, Key: []byte(t.Role()), Value: fmt.Append(nil, t.Number(), " ", n, " ", m.Member)})
			return err
		})
		if err == nil {
			m.say("wrote", t.Role(), t.Number(), n)
		}
		_ = task.Sleep(ctx, 50*time.Millisecond)
		if m.HandOver && n == 40 {
			return nil
		}
	}
	return nil
}
