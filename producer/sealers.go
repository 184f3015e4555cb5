package producer

import (
	"context"
	"sync"
	"time"

	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// sealers is a bounded pool of workers that compress batches, compute their
// checksums, write their headers, and cut batches in two. A worker ends when
// there is no work; the state of its codecs is kept for the next one.
type sealers struct {
	p *Producer

	mu      sync.Mutex
	queue   []sealing // guarded by mu
	running int       // guarded by mu
	idle    []*worker // guarded by mu
}

// worker is the state of the codecs of one goroutine.
type worker struct {
	compress.Compressor
	decompress compress.Decompressor
}

// sealing is a batch to seal, or to cut in two.
type sealing struct {
	batch *batch
	stamp record.Stamp
	codec int // in the order of preference
	cut   bool
}

func (s *sealers) init(p *Producer) { s.p = p }

// add has a batch sealed or cut; the actor hears of it.
func (s *sealers) add(job sealing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, job)
	if s.running < s.p.cfg.Workers && s.p.tasks.Go(s.work) {
		s.running++
	}
}

func (s *sealers) work(ctx context.Context) error {
	w := s.worker()
	for {
		job, ok := s.next(w, ctx.Err() != nil)
		switch {
		case !ok:
			return nil
		case job.cut:
			s.cut(job.batch, w)
		default:
			s.seal(job, w)
		}
	}
}

func (s *sealers) worker() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.idle); n > 0 {
		w := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return w
	}
	return new(worker)
}

func (s *sealers) next(w *worker, over bool) (sealing, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 || over {
		s.running--
		s.idle = append(s.idle, w)
		return sealing{}, false
	}
	job := s.queue[0]
	s.queue[0] = sealing{}
	s.queue = s.queue[1:]
	return job, true
}

func (s *sealers) seal(job sealing, w *worker) {
	p, b := s.p, job.batch
	if b.wire != nil { // sealed before, with a codec that the broker refused
		parts, _ := s.reopen(b, w, func(int) int { return 0 })
		b.builder = parts[0]
	}
	codec := p.cfg.codecs()[job.codec].codec()
	var dst []byte
	if codec != compress.None {
		dst = p.buffers.take(b.builder.Len())
	}
	wire, compressed := b.builder.Seal(job.stamp, codec, &w.Compressor, p.cfg.level(job.codec), dst)
	if compressed {
		p.buffers.put(b.builder.Release())
	} else if dst != nil {
		p.buffers.put(dst)
	}
	if !compressed {
		codec = compress.None
	}
	b.wire, b.stamp, b.codec = wire, job.stamp, codec
	p.post(func(a *actor, now time.Time) { a.onSealed(now, b) })
}
