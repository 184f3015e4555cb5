package group

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ottla/ottla/kafka"
)

var a0 = kafka.TopicPartition{Topic: "a", Partition: 0}

func opened(at kafka.Offset) *Book {
	b := NewBook()
	b.Open(a0, kafka.Commit{Offset: at}, true)
	return b
}

func work(first, next kafka.Offset) *Work {
	return &Work{TopicPartition: a0, First: first, Next: next, Epoch: 3}
}

func wantDue(t *testing.T, b *Book, at kafka.Offset) {
	t.Helper()
	due := b.Due(nil)
	if at < 0 && len(due) > 0 || at >= 0 && due[a0].Offset != at {
		t.Errorf("due %v, want %d", due, at)
	}
}

func TestG31G33AGapOfUnfinishedWorkHoldsTheWatermark(t *testing.T) {
	b := opened(5)
	one, two, three := work(5, 10), work(10, 20), work(20, 25)
	for _, w := range []*Work{one, two, three} {
		b.HandOut(w)
	}
	b.Finish(two)
	wantDue(t, b, -1)
	b.Finish(one)
	wantDue(t, b, 20)
	if due := b.Due(nil); due[a0].LeaderEpoch != 3 {
		t.Errorf("epoch %d, want that of the last finished batch", due[a0].LeaderEpoch)
	}
	b.Finish(one)
	wantDue(t, b, 20)
	if b.Unfinished(nil) != 1 || b.Oldest() != three {
		t.Error("the third is not finished")
	}
}

func TestG33MarksMoveTheWatermarkRecordByRecord(t *testing.T) {
	b := opened(0)
	w := work(0, 10)
	w.Count = 4 // 0, 1, 2 and 7: the others are compacted away
	b.HandOut(w)
	b.Mark(w, 1)
	wantDue(t, b, -1)
	b.Mark(w, 0)
	wantDue(t, b, 2)
	b.Mark(w, 7)
	b.Mark(w, 7)
	wantDue(t, b, 2)
	b.Mark(w, 2)
	wantDue(t, b, 10)
}

func TestG34LateResultsRewindNothing(t *testing.T) {
	b := opened(0)
	one, two := work(0, 10), work(10, 20)
	b.HandOut(one)
	b.HandOut(two)
	b.Finish(one)
	first := b.Due(nil)
	b.Sent(first)
	wantDue(t, b, -1)
	b.Finish(two)
	second := b.Due(nil)
	b.Sent(second)
	b.Settled(second, map[kafka.TopicPartition]error{a0: nil})
	b.Settled(first, map[kafka.TopicPartition]error{a0: nil}) // late
	wantDue(t, b, -1)
	b.Settled(second, map[kafka.TopicPartition]error{a0: errNotOwned})
	wantDue(t, b, -1)
}

func TestG34WhatWasRefusedIsDueAgain(t *testing.T) {
	b := opened(0)
	w := work(0, 10)
	b.HandOut(w)
	b.Finish(w)
	sent := b.Due(nil)
	b.Sent(sent)
	b.Settled(sent, map[kafka.TopicPartition]error{a0: errNotOwned})
	wantDue(t, b, 10)
}

func TestG33F38ASeekIsCommittedThoughItGoesBack(t *testing.T) {
	b := opened(0)
	w := work(0, 10)
	b.HandOut(w)
	b.Seek(a0, 4)
	wantDue(t, b, 4)
	b.Finish(w) // handed out before the seek
	wantDue(t, b, 4)
	again := work(4, 10)
	b.HandOut(again)
	b.Finish(again)
	wantDue(t, b, 10)
}

// What is read again after a seek back is committed below what was committed
// before: a Commit that says nothing would otherwise leave the old offset, and who
// goes on there skips the rest. Mutation: progress that forgets the seek.
func TestG33ProgressAfterASeekBackIsCommitted(t *testing.T) {
	for how, progress := range map[string]func(b *Book){
		"work": func(b *Book) {
			w := work(4, 6)
			b.HandOut(w)
			b.Finish(w)
		},
		"marks": func(b *Book) {
			w := work(4, 8)
			w.Count = 4
			b.HandOut(w)
			b.Mark(w, 4)
			b.Mark(w, 5)
		},
		"polls": func(b *Book) { b.Set(a0, kafka.Commit{Offset: 6}) },
	} {
		for _, to := range []kafka.Offset{4, -1} {
			b := opened(0)
			first := work(0, 10)
			b.HandOut(first)
			b.Finish(first)
			sent := b.Due(nil)
			b.Sent(sent)
			b.Seek(a0, to)
			b.Settled(sent, map[kafka.TopicPartition]error{a0: nil}) // of before the seek
			progress(b)
			wantDue(t, b, 6)
			sent = b.Due(nil)
			b.Sent(sent)
			wantDue(t, b, -1)
			b.Settled(sent, map[kafka.TopicPartition]error{a0: nil})
			b.Settled(Offsets{a0: {Offset: 5}}, map[kafka.TopicPartition]error{a0: nil}) // late: rewinds nothing
			wantDue(t, b, -1)
			if t.Failed() {
				t.Fatalf("%s after a seek to %d", how, to)
			}
		}
	}
}

func TestB188NothingOfALostPartitionIsCommitted(t *testing.T) {
	b := opened(0)
	w := work(0, 10)
	b.HandOut(w)
	b.Close(a0)
	b.Finish(w)
	b.HandOut(work(10, 20))
	if len(b.Due(nil)) > 0 || b.Unfinished(nil) > 0 {
		t.Error("a closed page is due")
	}
	b.Open(a0, kafka.Commit{Offset: 50}, true)
	b.Finish(w)
	wantDue(t, b, -1)
}

func TestB190WithoutEpochsTheOffsetDecides(t *testing.T) {
	b := opened(0)
	for i := range kafka.Offset(3) {
		w := work(i, i+1)
		w.Epoch = kafka.NoEpoch
		b.HandOut(w)
		b.Finish(w)
		wantDue(t, b, i+1)
	}
}

func TestG21AProtocolThatIsSwitchedOffIsAVersionErrorToo(t *testing.T) {
	m := New(Config{Group: "g", Consumer: true}, nil)
	var ve *kafka.VersionError
	if err := m.memberError(codeUnsupportedVersion, nil); !errors.As(err, &ve) || ve.API != 68 {
		t.Errorf("%v", err)
	}
	if err := m.memberError(codeFencedInstance, nil); errors.As(err, &ve) || !errors.Is(err, kafka.ErrFenced) {
		t.Errorf("%v", err)
	}
}

// The mutation that fails it: let advance pass work that is not done.
func TestG32G33TheWatermarkIsTheLowestUnfinishedOffsetForAnyOrder(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 33))
		b := opened(0)
		var out []*Work
		next, finished := kafka.Offset(0), map[kafka.Offset]bool{}
		for range 60 {
			switch rng.IntN(3) {
			case 0:
				n := kafka.Offset(1 + rng.IntN(5))
				w := work(next, next+n)
				w.Count, w.Since = int(n), time.Unix(int64(next), 0)
				b.HandOut(w)
				out = append(out, w)
				next += n
			case 1:
				if len(out) > 0 {
					w := out[rng.IntN(len(out))]
					b.Finish(w)
					for o := w.First; o < w.Next; o++ {
						finished[o] = true
					}
				}
			default:
				if len(out) > 0 {
					w := out[rng.IntN(len(out))]
					o := w.First + kafka.Offset(rng.IntN(int(w.Next-w.First)))
					b.Mark(w, o)
					finished[o] = true
				}
			}
			want := kafka.Offset(0)
			for finished[want] {
				want++
			}
			if got, _ := b.Watermark(a0); got.Offset != want {
				t.Fatalf("seed %d: watermark %d, the lowest unfinished is %d", seed, got.Offset, want)
			}
		}
	}
}

// Where reading begins is told when OnAssigned has sought already. Mutation: a page
// that is opened over the seek.
func TestG33_F35ASeekBeforeThePageIsOpenedStands(t *testing.T) {
	b := NewBook()
	b.Seek(a0, 2)
	b.Open(a0, kafka.Commit{Offset: 8}, true)
	wantDue(t, b, 2)
	w := work(2, 6)
	b.HandOut(w)
	b.Finish(w)
	wantDue(t, b, 6)
}

// Where reading began is due with the first work, though nobody told; where it
// began at what is committed, nothing is.
func TestB187_G31WorkTellsWhereReadingBegan(t *testing.T) {
	b := NewBook()
	b.Open(a0, kafka.Commit{Offset: -1}, false)
	wantDue(t, b, -1)
	b.Begin(a0, kafka.Commit{Offset: -1})
	wantDue(t, b, -1)
	w := work(7, 9)
	b.HandOut(w)
	wantDue(t, b, 7)
	b.Begin(a0, kafka.Commit{Offset: 8})
	wantDue(t, b, 7)
	other := NewBook()
	other.Open(a0, kafka.Commit{Offset: -1}, false)
	other.Begin(a0, kafka.Commit{Offset: 8})
	wantDue(t, other, 8)
	other.Begin(a0, kafka.Commit{Offset: 9})
	wantDue(t, other, 8)
}

// Work that is given back is waited for by nobody and holds the watermark.
func TestG38WorkThatIsGivenBackIsNotFinished(t *testing.T) {
	b := opened(0)
	one, two := work(0, 5), work(5, 9)
	one.Since, two.Since = time.Unix(1, 0), time.Unix(2, 0)
	b.HandOut(one)
	b.HandOut(two)
	if n := b.Unfinished(nil); n != 2 || b.Oldest() != one {
		t.Errorf("%d unfinished", n)
	}
	b.Abandon(one)
	if n := b.Unfinished(nil); n != 1 || b.Oldest() != two {
		t.Errorf("%d unfinished", n)
	}
	b.Finish(two)
	wantDue(t, b, -1)
	if n := b.Unfinished(nil); n != 0 || b.Oldest() != nil {
		t.Errorf("%d unfinished", n)
	}
}

// Mutations: marks outside of the work, or of a partition without a page.
func TestG33MarksThatFitNoWorkDoNothing(t *testing.T) {
	b := opened(5)
	w := work(5, 8)
	b.HandOut(w)
	for _, o := range []kafka.Offset{4, 8} {
		b.MarkAt(a0, o)
		b.Mark(w, o)
	}
	b.MarkAt(kafka.TopicPartition{Topic: "other"}, 5)
	wantDue(t, b, -1)
	b.MarkAt(a0, 5)
	wantDue(t, b, 6)
}
