//go:build kafka

package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/kafka"
)

// TestKafkaChaos has five processes campaign for three roles while they are
// killed, suspended and cut off, and brokers are killed and suspended. Each
// leader appends (term, n) through its bound producer. Read back committed,
// terms never go back, no two leaders' writes interleave, and nothing that a
// leader took for written is missing; once everything is healed each role is
// led again. OTTLA_CHAOS says how long, 20 s by default.
func TestKafkaChaos(t *testing.T) {
	length := 20 * time.Second
	if s := os.Getenv("OTTLA_CHAOS"); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatal("OTTLA_CHAOS: ", err)
		}
	}
	c := &chaos{t: t, topic: fmt.Sprint("chaos", time.Now().UnixNano()), wrote: map[string]map[string]bool{}, terms: map[string]int{}, faults: map[string]int{}}
	createTopic(t, dialKafka(t), c.topic)
	for _, name := range []string{"x", "y", "z"} {
		c.roles = append(c.roles, c.topic+"-"+name)
		c.wrote[c.topic+"-"+name] = map[string]bool{}
	}
	for i := range 5 {
		c.places = append(c.places, &place{c: c, i: i, gate: newGate(t)})
		c.places[i].start()
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	var wg sync.WaitGroup
	end := time.Now().Add(length)
	wg.Add(2)
	go func() { defer wg.Done(); c.troubleBrokers(end) }()
	go func() { defer wg.Done(); c.troubleMembers(end, rand.New(rand.NewPCG(seed, 1))) }()
	wg.Wait()
	c.everyRoleIsLed()
	for _, p := range c.places {
		p.stop()
	}
	c.check()
	t.Log("faults: ", c.faults)
}

type chaos struct {
	t      *testing.T
	topic  string
	roles  []string
	places []*place

	mu     sync.Mutex
	wrote  map[string]map[string]bool // by role: "term n" that its leader took for committed
	terms  map[string]int             // by role: leaderships that members reported
	faults map[string]int
}

// place is one of five members, and those who come after it when it is killed.
type place struct {
	c     *chaos
	i     int
	born  int
	gate  *gate
	one   sync.Mutex // one fault at a time
	prog  *realkafka.Program
	stdin io.Closer
}

func (p *place) start() {
	p.born++
	cfg, err := json.Marshal(memberConfig{
		Member: fmt.Sprintf("m%d.%d", p.i, p.born), Roles: p.c.roles, Topic: p.c.topic,
		Bootstrap: strings.Split(real.Bootstrap(), ","), Gate: p.gate.addr(), HandOver: p.i%2 == 0,
	})
	if err != nil {
		p.c.t.Error(err)
		return
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), memberEnv+"="+string(cfg))
	cmd.Stderr = os.Stderr
	if p.stdin, err = cmd.StdinPipe(); err == nil {
		p.prog, err = real.Launch(cmd, p.c.hear)
	}
	if err != nil {
		p.c.t.Error(err)
	}
}

// kill ends the process without a chance to do anything.
func (p *place) kill() {
	p.prog.Kill()
	<-p.prog.Done()
	_ = p.stdin.Close()
}

// stop ends the process in order.
func (p *place) stop() {
	_ = p.stdin.Close()
	late := time.AfterFunc(time.Minute, p.prog.Kill)
	defer late.Stop()
	if err := p.prog.Err(); err != nil {
		p.c.t.Errorf("member %d ends with %v", p.i, err)
	}
}

// hear takes a line of a member.
func (c *chaos) hear(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what, rest, _ := strings.Cut(line, " ")
	role, rest, _ := strings.Cut(rest, " ")
	switch what {
	case "leads":
		c.terms[role]++
	case "wrote":
		c.wrote[role][rest] = true
	default:
		c.t.Error("a member says: ", line)
	}
}

func (c *chaos) count(fault string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[fault]++
}

// troubleBrokers kills and suspends one broker after the other.
func (c *chaos) troubleBrokers(end time.Time) {
	for n := 1; time.Now().Before(end); n++ {
		victim := 1 + n%3
		var err error
		if n%2 == 0 {
			c.count("broker suspended")
			err = real.Pause(victim)
			time.Sleep(3 * time.Second)
			err = errors.Join(err, real.Resume(victim))
		} else {
			c.count("broker killed")
			err = real.Kill(victim)
			time.Sleep(time.Second)
			err = errors.Join(err, real.Restart(victim))
		}
		if err != nil {
			c.t.Error(err)
		}
		time.Sleep(2 * time.Second)
	}
}

// troubleMembers has a fault at one member after the other, two at a time.
func (c *chaos) troubleMembers(end time.Time, rng *rand.Rand) {
	var wg sync.WaitGroup
	busy := make(chan struct{}, 2)
	all := strings.Split(real.Bootstrap(), ",")
	faults := []struct {
		name string
		do   func(p *place, d time.Duration)
	}{
		{"suspended", func(p *place, d time.Duration) {
			p.prog.Pause()
			time.Sleep(d + 4*time.Second) // mostly longer than a lease
			p.prog.Resume()
		}},
		{"killed", func(p *place, d time.Duration) { p.kill(); p.start() }},
		{"cut off, connections closed", func(p *place, d time.Duration) { p.cut(dropped, d, all...) }},
		{"cut off, nothing carried", func(p *place, d time.Duration) { p.cut(stalled, d, all...) }},
		{"cut off, no answers", func(p *place, d time.Duration) { p.cut(unanswered, d, all...) }},
		{"cut off from one broker", func(p *place, d time.Duration) { p.cut(stalled, 2*d, all[int(d)%len(all)]) }},
	}
	order := rng.Perm(len(faults))
	places := rng.Perm(len(c.places))
	for n := 0; time.Now().Before(end); n++ {
		f, p := faults[order[n%len(order)]], c.places[places[n%len(places)]]
		if n%len(order) == len(order)-1 {
			rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		d := time.Second + time.Duration(rng.Int64N(int64(6*time.Second)))
		busy <- struct{}{}
		c.count("member " + f.name)
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-busy }()
			p.one.Lock()
			defer p.one.Unlock()
			f.do(p, d)
		}()
		time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
	}
	wg.Wait()
}

func (p *place) cut(how cut, d time.Duration, brokers ...string) {
	p.gate.set(how, brokers...)
	time.Sleep(d)
	p.gate.set(whole, brokers...)
}

// everyRoleIsLed waits until each role's leader has written again.
func (c *chaos) everyRoleIsLed() {
	c.mu.Lock()
	before := map[string]int{}
	for _, role := range c.roles {
		before[role] = len(c.wrote[role])
	}
	c.mu.Unlock()
	end := time.Now().Add(2 * time.Minute)
	for _, role := range c.roles {
		for led := false; !led; {
			c.mu.Lock()
			led = len(c.wrote[role]) > before[role]
			c.mu.Unlock()
			if !led && time.Now().After(end) {
				c.t.Errorf("role %s is not led although everything is healed", role)
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// written is a record of a leader.
type written struct {
	term, n int64
	member  string
}

// check reads everything back.
func (c *chaos) check() {
	type seen struct {
		last  written
		count int
		has   map[string]bool
	}
	roles := map[string]*seen{}
	for _, role := range c.roles {
		roles[role] = &seen{has: map[string]bool{}}
	}
	readCommitted(c.t, c.topic, func(r kafka.Record) {
		var w written
		if _, err := fmt.Sscan(string(r.Value), &w.term, &w.n, &w.member); err != nil {
			c.t.Fatal(err)
		}
		s := roles[string(r.Key)]
		switch {
		case s.count == 0:
		case w.term < s.last.term, w.term == s.last.term && (w.n <= s.last.n || w.member != s.last.member):
			c.t.Errorf("role %s: %+v after %+v", r.Key, w, s.last)
		}
		s.last = w
		s.count++
		s.has[fmt.Sprint(w.term, " ", w.n)] = true
	})
	for _, role := range c.roles {
		s := roles[role]
		c.t.Logf("%s: %d records, %d taken for written, %d leaderships", role, s.count, len(c.wrote[role]), c.terms[role])
		for w := range c.wrote[role] {
			if !s.has[w] {
				c.t.Errorf("role %s: (term, n) %s was committed and is not there", role, w)
			}
		}
	}
}

// readCommitted gives f every committed record of a topic of two partitions.
func readCommitted(t *testing.T, topic string, f func(kafka.Record)) {
	t.Helper()
	c, err := consumer.New(dialKafka(t), consumer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := within(t, 5*time.Minute)
	at := map[kafka.TopicPartition]consumer.Start{}
	for p := range int32(2) {
		at[kafka.TopicPartition{Topic: topic, Partition: p}] = consumer.Earliest()
	}
	if err := c.Assign(ctx, at); err != nil {
		t.Fatal(err)
	}
	ends := map[kafka.TopicPartition]kafka.Offset{}
	for tp := range at {
		end, err := c.End(ctx, tp)
		if err != nil {
			t.Fatal(err)
		}
		ends[tp] = end[tp]
	}
	reading, caughtUp := context.WithCancel(ctx)
	defer caughtUp()
	go func() { // what comes last may be an aborted record, which is not given out
		defer caughtUp()
		for tp, end := range ends {
			for pos := kafka.Offset(0); pos < end && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
				pos, _ = c.Position(ctx, tp)
			}
		}
	}()
	for r, err := range c.Records(reading) {
		if reading.Err() != nil {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		f(r)
	}
	if ctx.Err() != nil {
		t.Fatal("the topic was not read to its end")
	}
}
