package produce

import (
	"container/heap"
	"time"
)

// timers is a heap of partitions by the time they want to be looked at.
type timers []*partition

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].wake.Before(t[j].wake) }

func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

func (t *timers) Push(x any) {
	p := x.(*partition)
	p.index = len(*t)
	*t = append(*t, p)
}

func (t *timers) Pop() any {
	old := *t
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	p.index = -1
	return p
}

// set moves p to at; zero takes it out.
func (t *timers) set(p *partition, at time.Time) {
	switch {
	case at.IsZero() && p.index >= 0:
		heap.Remove(t, p.index)
	case at.IsZero():
	case p.index >= 0 && p.wake.Equal(at):
	case p.index >= 0:
		p.wake = at
		heap.Fix(t, p.index)
	default:
		p.wake = at
		heap.Push(t, p)
	}
}

// due takes out a partition whose time has come.
func (t *timers) due(now time.Time) *partition {
	if len(*t) == 0 || (*t)[0].wake.After(now) {
		return nil
	}
	return heap.Pop(t).(*partition)
}

func (t timers) first() time.Time {
	if len(t) == 0 {
		return time.Time{}
	}
	return t[0].wake
}
