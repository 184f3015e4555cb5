package leader

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/kafka"
)

// What goes out above its pin moves the pair behind the leader's back: the
// campaign through such a client ends, and leaves the role to others.
func TestP50AClientAboveThePinIsAnInvalidConfiguration(t *testing.T) {
	for key, pin := range map[int16]int16{0: 11, 24: 3, 26: 4} {
		t.Run(kmsg.NameForKey(key), func(t *testing.T) {
			onStage(t, model.Config{}, func(t *testing.T, s *stage) {
				a, b := s.member("a"), s.member("b")
				s.links["a"].set(func(l *link) {
					l.edit = func(req kmsg.Request, resp kmsg.Response) {
						if p, ok := req.(*kmsg.ProduceRequest); req.Key() == key && (!ok || p.TransactionID != nil) {
							resp.SetVersion(pin + 1)
						}
					}
				})
				_, err := a.Campaign(within(t, time.Minute), "r")
				if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), kmsg.NameForKey(key)) {
					t.Fatal(err)
				}
				began := time.Now()
				win(t, b, "r")
				if took := time.Since(began); took > brief.Lease+2*time.Second {
					t.Errorf("another leads after %v", took)
				}
			})
		})
	}
}

func TestP50ALeaderWhoseClientLeavesThePinStops(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		s.links["a"].set(func(l *link) {
			l.edit = func(req kmsg.Request, resp kmsg.Response) {
				if req.Key() == 24 {
					resp.SetVersion(4)
				}
			}
		})
		time.Sleep(brief.Renew + time.Second)
		if err := ta.Err(); !errors.Is(err, ErrInvalidConfig) {
			t.Error(err)
		}
	})
}

// A renewal finds the partition's leader and the coordinator anew by its own
// answers: here nothing else tells, as no Fetch arrives.
func TestG3ARenewalGoesToWhereThePartitionMoved(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a", func(c *Config) { c.FetchWait = time.Hour }), "r")
		s.links["a"].setCut(true, func(key int16) bool { return key == 1 }) // unnoticed for an hour
		for to := range kafka.NodeID(3) {
			s.with(func(m *model.Cluster) { m.MoveLeader(placeOf("r"), to+1) })
			time.Sleep(2 * brief.Renew)
			var last time.Time
			s.with(func(m *model.Cluster) {
				ls := leases(m, "r")
				last = ls[len(ls)-1].lease.Granted.Time()
			})
			if age := time.Since(last); ta.Err() != nil || age > brief.Renew+time.Second {
				t.Fatalf("the partition is at %d: %v, the last renewal is %v old", to+1, ta.Err(), age)
			}
		}
	})
}

// The last request of a grant is answered while the Elector is being closed:
// that is no success, and nobody has to wait for the lease to run out.
func TestP4AGrantBesideCloseIsGivenBack(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		s.links["a"].set(func(l *link) {
			l.edit = func(req kmsg.Request, _ kmsg.Response) {
				if q, ok := req.(*kmsg.EndTxnRequest); ok && q.Commit { // as Close begins
					a.mu.Lock()
					defer a.mu.Unlock()
					a.closed = true
				}
			}
		})
		if tm, err := a.Campaign(within(t, time.Minute), "r"); tm != nil || !errors.Is(err, ErrClosed) {
			t.Errorf("%v, %v", tm, err)
		}
		if a.Held("r") != nil {
			t.Error("the role is held")
		}
		began := time.Now()
		win(t, b, "r")
		if took := time.Since(began); took > brief.Stagger {
			t.Errorf("another leads after %v", took)
		}
		if got := s.roster(b, "r"); len(got) != 1 {
			t.Errorf("the roster is %v", got)
		}
		a.mu.Lock()
		a.closed = false // the rest of Close
		a.mu.Unlock()
	})
}

// Who has led and is closed leaves no name behind that others would count.
func TestB10AFormerLeaderThatIsClosedLeavesTheRoster(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *stage, ta *Term){
		"resigned": func(t *testing.T, _ *stage, ta *Term) {
			if err := ta.Resign(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
		},
		"lost": func(t *testing.T, s *stage, ta *Term) {
			newForeign(s.link("x"), "r").mint()
			<-ta.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, model.Config{}, func(t *testing.T, s *stage) {
				a, b := s.member("a"), s.member("b")
				end(t, s, win(t, a, "r"))
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
				if got := s.roster(b, "r"); len(got) != 0 {
					t.Errorf("the roster is %v", got)
				}
			})
		})
	}
}
