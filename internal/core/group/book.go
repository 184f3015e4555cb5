package group

import (
	"slices"
	"time"

	"github.com/ottla/ottla/kafka"
)

// Book keeps, for each partition of a member, what was handed out, what of it
// is finished, and what was committed. The watermark of a partition is the
// lowest offset that is not finished; it only moves forward, except by Seek.
type Book struct {
	pages map[kafka.TopicPartition]*page
}

// page is one partition.
type page struct {
	mark      kafka.Commit // the watermark
	committed kafka.Offset // as the broker confirmed it, -1 if not
	sent      kafka.Offset // in flight, -1 if nothing
	work      []*Work      // handed out, not finished, rising
	moved     bool         // it went back, or the user set it, and no commit says so yet
}

// Work is one stretch of offsets that was handed out.
type Work struct {
	kafka.TopicPartition
	First, Next kafka.Offset // from First up to Next
	Epoch       kafka.LeaderEpoch
	Count       int // of records in it, for marks; 0 = only as a whole
	Since       time.Time

	done   bool
	given  bool           // up: see Abandon
	marked []kafka.Offset // rising
}

// NewBook makes an empty book.
func NewBook() *Book { return &Book{pages: map[kafka.TopicPartition]*page{}} }

// Open begins the page of a partition that is read from an offset on, or from where
// it was sought to before. Its committed offset is that one if committed says so.
func (b *Book) Open(tp kafka.TopicPartition, at kafka.Commit, committed bool) {
	p := b.pages[tp]
	if p == nil {
		p = &page{mark: at, committed: -1, sent: -1}
	}
	if committed {
		p.committed = at.Offset
	}
	b.pages[tp] = p
}

// Seek begins anew at an offset, which is to be committed even if it is lower.
// Work handed out before counts no more.
func (b *Book) Seek(tp kafka.TopicPartition, to kafka.Offset) {
	p := b.pages[tp]
	if p == nil {
		p = &page{committed: -1}
		b.pages[tp] = p
	}
	p.work, p.sent = nil, -1
	p.mark = kafka.Commit{Offset: to, LeaderEpoch: kafka.NoEpoch}
	p.moved = true
}

// Close ends the page of a partition.
func (b *Book) Close(tp kafka.TopicPartition) { delete(b.pages, tp) }

// HandOut enters work, if the partition has a page.
func (b *Book) HandOut(w *Work) {
	p := b.pages[w.TopicPartition]
	if p == nil {
		return
	}
	if p.mark.Offset < 0 { // started where the broker said, which nobody told
		p.mark.Offset = w.First
	}
	p.work = append(p.work, w)
}

// Finish says that all of w is done. Doing so twice, or after the partition
// went, changes nothing.
func (b *Book) Finish(w *Work) {
	p := b.pages[w.TopicPartition]
	if p == nil {
		return
	}
	w.done = true
	p.advance()
}

// Mark says that the record of w at an offset is done.
func (b *Book) Mark(w *Work, o kafka.Offset) {
	p := b.pages[w.TopicPartition]
	if p == nil || o < w.First || o >= w.Next {
		return
	}
	i, twice := slices.BinarySearch(w.marked, o)
	if twice {
		return
	}
	w.marked = slices.Insert(w.marked, i, o)
	w.done = w.done || w.Count > 0 && len(w.marked) >= w.Count
	p.advance()
}

// advance moves the watermark over what is finished.
func (p *page) advance() {
	for len(p.work) > 0 && p.work[0].done {
		w := p.work[0]
		p.work = p.work[1:]
		if w.Next > p.mark.Offset {
			p.mark = kafka.Commit{Offset: w.Next, LeaderEpoch: w.Epoch}
		}
	}
	if len(p.work) == 0 {
		return
	}
	w := p.work[0]
	at := w.First
	for _, o := range w.marked {
		if o > at {
			break
		}
		at = o + 1
	}
	if at > w.First && at > p.mark.Offset {
		p.mark = kafka.Commit{Offset: at, LeaderEpoch: w.Epoch}
	}
}

// Due are the watermarks of these partitions, or of all with nil, that the
// broker does not have yet.
func (b *Book) Due(tps []kafka.TopicPartition) Offsets {
	due := Offsets{}
	for tp, p := range b.pages {
		if tps != nil && !slices.Contains(tps, tp) {
			continue
		}
		if p.mark.Offset >= 0 && p.mark.Offset != p.committed && p.mark.Offset != p.sent && (p.moved || p.mark.Offset > p.committed) {
			due[tp] = p.mark
		}
	}
	return due
}

// Sent notes that offsets are on their way.
func (b *Book) Sent(offsets Offsets) {
	for tp, c := range offsets {
		if p := b.pages[tp]; p != nil {
			p.sent = c.Offset
		}
	}
}

// Settled takes the result of what was sent.
func (b *Book) Settled(offsets Offsets, results map[kafka.TopicPartition]error) {
	for tp, c := range offsets {
		p := b.pages[tp]
		if p == nil {
			continue
		}
		last := p.sent == c.Offset
		if last {
			p.sent = -1
		}
		if err, ok := results[tp]; ok && err == nil && (p.moved || c.Offset > p.committed) {
			p.committed = c.Offset
			p.moved = p.moved && !last
		}
	}
}

// Unfinished is how many stretches of these partitions, or of all with nil, are
// handed out and not finished.
func (b *Book) Unfinished(tps []kafka.TopicPartition) (n int) {
	for tp, p := range b.pages {
		if tps == nil || slices.Contains(tps, tp) {
			n += p.unfinished()
		}
	}
	return n
}

func (p *page) unfinished() (n int) {
	for _, w := range p.work {
		if !w.done && !w.given {
			n++
		}
	}
	return n
}

// Oldest is the work that was handed out longest ago and is not finished, nil
// if there is none.
func (b *Book) Oldest() *Work {
	var oldest *Work
	for _, p := range b.pages {
		i := slices.IndexFunc(p.work, func(w *Work) bool { return !w.done && !w.given })
		if i < 0 {
			continue
		}
		w := p.work[i]
		if oldest == nil || w.Since.Before(oldest.Since) || w.Since.Equal(oldest.Since) && w.Compare(oldest.TopicPartition) < 0 {
			oldest = w
		}
	}
	return oldest
}

// Watermark of a partition is the next offset to commit; ok is false without a page.
func (b *Book) Watermark(tp kafka.TopicPartition) (c kafka.Commit, ok bool) {
	p := b.pages[tp]
	if p == nil {
		return c, false
	}
	return p.mark, true
}

// Set moves the watermark of a partition to where somebody else says that work
// is finished.
func (b *Book) Set(tp kafka.TopicPartition, at kafka.Commit) {
	p := b.pages[tp]
	if p == nil || at.Offset < 0 || at.Offset == p.mark.Offset {
		return
	}
	p.moved = p.moved || at.Offset < p.mark.Offset
	p.mark = at
}

// Begin tells where reading of partitions began, for those of which nothing was
// handed out yet: a start that is only known to the member is lost with it.
func (b *Book) Begin(tp kafka.TopicPartition, at kafka.Commit) {
	if p := b.pages[tp]; p != nil && p.mark.Offset < 0 && len(p.work) == 0 && at.Offset >= 0 {
		p.mark = at
	}
}

// MarkAt is Mark for the work that an offset belongs to.
func (b *Book) MarkAt(tp kafka.TopicPartition, o kafka.Offset) {
	p := b.pages[tp]
	if p == nil {
		return
	}
	for _, w := range p.work {
		if o >= w.First && o < w.Next {
			b.Mark(w, o)
			return
		}
	}
}

// Abandon says that nobody works on w any more and that it is not finished: the
// watermark stays below it.
func (b *Book) Abandon(w *Work) { w.given = true }
