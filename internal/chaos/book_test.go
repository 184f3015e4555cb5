//go:build kafka

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ottla/ottla/kafka"
)

// outcome is what became of a record, as its producer was told.
type outcome uint8

const (
	done    outcome = iota + 1 // acknowledged, or its transaction was committed
	notDone                    // it is not there: refused, or its transaction was aborted
	unknown
)

// book is what producers were told about their records, by value. A value is
// "writer/partition/number", numbers rise within a writer and a partition.
type book struct {
	mu       sync.Mutex
	outcomes map[string]outcome  // guarded by mu
	together map[string][]string // guarded by mu: records of a transaction, by its first
}

func newBook() *book {
	return &book{outcomes: map[string]outcome{}, together: map[string][]string{}}
}

func (b *book) note(value string, o outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcomes[value] = o
}

// transaction notes records that are there all or none.
func (b *book) transaction(values []string, o outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.together[values[0]] = values
	for _, v := range values {
		b.outcomes[v] = o
	}
}

func (b *book) count() (n map[outcome]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = map[outcome]int{}
	for _, o := range b.outcomes {
		n[o]++
	}
	return n
}

// seen is what a consumer read, by partition.
type seen struct {
	offsets map[int32][]kafka.Offset
	values  map[int32][]string
	errs    []error
}

func newSeen() *seen {
	return &seen{offsets: map[int32][]kafka.Offset{}, values: map[int32][]string{}}
}

func (s *seen) add(r kafka.Record) {
	s.offsets[r.Partition] = append(s.offsets[r.Partition], r.Offset)
	s.values[r.Partition] = append(s.values[r.Partition], string(r.Value))
}

// check compares what was read with what was acknowledged, and tells the first
// of what is wrong.
func (b *book) check(t *testing.T, who string, s *seen) {
	t.Helper()
	wrong := slices.Concat(s.wrong(), b.wrong(s))
	for _, err := range wrong[:min(len(wrong), 20)] {
		t.Errorf("%s: %v", who, err)
	}
	if len(wrong) > 20 {
		t.Errorf("%s: and %d more", who, len(wrong)-20)
	}
}

// wrong is what can be seen without the book: the order of what came.
func (s *seen) wrong() []error {
	wrong, times := slices.Clone(s.errs), map[string]int{}
	for p, values := range s.values {
		if !slices.IsSorted(s.offsets[p]) {
			wrong = append(wrong, fmt.Errorf("offsets of partition %d do not rise", p))
		}
		last := map[string]int{} // by writer
		for _, v := range values {
			if times[v]++; times[v] > 1 {
				wrong = append(wrong, fmt.Errorf("%s came %d times", v, times[v]))
			}
			writer, rest, _ := strings.Cut(v, "/")
			var at, n int
			if _, err := fmt.Sscanf(rest, "%d/%d", &at, &n); err != nil || int32(at) != p {
				wrong = append(wrong, fmt.Errorf("%q in partition %d: %v", v, p, err))
			}
			if l, ok := last[writer]; ok && n <= l {
				wrong = append(wrong, fmt.Errorf("%s behind number %d of its writer", v, l))
			}
			last[writer] = n
		}
	}
	return wrong
}

// wrong is what was told otherwise, and transactions that are torn.
func (b *book) wrong(s *seen) (wrong []error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	there := map[string]bool{}
	for _, values := range s.values {
		for _, v := range values {
			there[v] = true
			if b.outcomes[v] == 0 {
				wrong = append(wrong, fmt.Errorf("%q was never written", v))
			}
		}
	}
	for v, o := range b.outcomes {
		switch {
		case o == done && !there[v]:
			wrong = append(wrong, fmt.Errorf("%s was acknowledged and is lost", v))
		case o == notDone && there[v]:
			wrong = append(wrong, fmt.Errorf("%s is there and should not be", v))
		}
	}
	for _, tx := range b.together {
		n := 0
		for _, v := range tx {
			if there[v] {
				n++
			}
		}
		if n != 0 && n != len(tx) {
			wrong = append(wrong, fmt.Errorf("%d of %d records of a transaction: %v", n, len(tx), tx))
		}
	}
	return wrong
}

// TestTheBookFindsWhatIsWrong makes each mistake once: a check that cannot fail
// is none.
func TestTheBookFindsWhatIsWrong(t *testing.T) {
	for name, spoil := range map[string]func(b *book, s *seen){
		"lost":            func(b *book, _ *seen) { b.note("w/0/9", done) },
		"doubled":         func(_ *book, s *seen) { s.add(kafka.Record{Offset: 9, Value: []byte("w/0/2")}) },
		"aborted":         func(b *book, _ *seen) { b.note("w/0/2", notDone) },
		"never written":   func(_ *book, s *seen) { s.add(kafka.Record{Offset: 9, Value: []byte("w/0/8")}) },
		"out of order":    func(b *book, s *seen) { b.note("w/0/0", done); s.add(kafka.Record{Offset: 9, Value: []byte("w/0/0")}) },
		"offsets fall":    func(_ *book, s *seen) { s.offsets[0][1] = 0 },
		"torn":            func(b *book, _ *seen) { b.transaction([]string{"w/0/2", "w/0/3"}, unknown) },
		"wrong partition": func(_ *book, s *seen) { s.values[1] = append(s.values[1], "w/0/2") },
	} {
		b, s := newBook(), newSeen()
		for i := 1; i <= 2; i++ {
			v := fmt.Sprintf("w/0/%d", i)
			b.note(v, done)
			s.add(kafka.Record{Offset: kafka.Offset(i), Value: []byte(v)})
		}
		inner := &testing.T{}
		b.check(inner, "nobody", s)
		if inner.Failed() {
			t.Fatal("a good book is refused")
		}
		spoil(b, s)
		b.check(inner, name, s)
		if !inner.Failed() {
			t.Errorf("%s is not found", name)
		}
	}
}
