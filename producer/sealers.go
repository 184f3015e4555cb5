package producer

import (
	"context"
	"sync"
	"time"

	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// sealers is a bounded pool of workers that compress batches, compute their
// checksums and write their headers. A worker ends when there is no work; the
// state of its codec is kept for the next one.
type sealers struct {
	p *Producer

	mu      sync.Mutex
	queue   []sealing              // guarded by mu
	running int                    // guarded by mu
	idle    []*compress.Compressor // guarded by mu
}

type sealing struct {
	batch *batch
	stamp record.Stamp
}

func (s *sealers) init(p *Producer) { s.p = p }

// add has a batch sealed; the actor hears of it.
func (s *sealers) add(job sealing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, job)
	if s.running < s.p.cfg.Workers && s.p.tasks.Go(s.work) {
		s.running++
	}
}

func (s *sealers) work(ctx context.Context) error {
	c := s.compressor()
	for {
		job, ok := s.next(c, ctx.Err() != nil)
		if !ok {
			return nil
		}
		s.seal(job, c)
	}
}

func (s *sealers) compressor() *compress.Compressor {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.idle); n > 0 {
		c := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return c
	}
	return new(compress.Compressor)
}

func (s *sealers) next(c *compress.Compressor, over bool) (sealing, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 || over {
		s.running--
		s.idle = append(s.idle, c)
		return sealing{}, false
	}
	job := s.queue[0]
	s.queue[0] = sealing{}
	s.queue = s.queue[1:]
	return job, true
}

func (s *sealers) seal(job sealing, c *compress.Compressor) {
	p, b := s.p, job.batch
	codec := p.cfg.Compression.codec()
	var dst []byte
	if codec != compress.None {
		dst = p.buffers.take(b.builder.Len())
	}
	wire, compressed := b.builder.Seal(job.stamp, codec, c, p.cfg.CompressionLevel, dst)
	if compressed {
		p.buffers.put(b.builder.Release())
	} else if dst != nil {
		p.buffers.put(dst)
	}
	b.wire, b.stamp = wire, job.stamp
	p.post(func(a *actor, now time.Time) { a.onSealed(now, b) })
}
