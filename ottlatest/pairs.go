package ottlatest

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// pairs are the producer ids and epochs of transactional ids. A coordinator takes
// a re-init from who has the current pair, and answers it again to who had the
// one before (KIP-360); kfake takes every epoch that was ever given out, so that
// a deposed producer could fence the one that deposed it.
type pairs struct {
	mu sync.Mutex
	of map[string]succession // guarded by mu: by transactional id
}

type pair struct {
	id    int64
	epoch int16
}

// succession is the current pair and the one whose holder was given it: none
// after an init without a pair.
type succession struct{ current, before pair }

var noPair = pair{-1, -1}

// onInit answers a re-init that kfake would take and a coordinator does not.
func (p *pairs) onInit(req *kmsg.InitProducerIDRequest) (kmsg.Response, bool) {
	has := pair{req.ProducerID, req.ProducerEpoch}
	if req.TransactionalID == nil || has == noPair {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s, known := p.of[*req.TransactionalID]
	if !known || has == s.current {
		return nil, false
	}
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	switch {
	case has == s.before:
		resp.ProducerID, resp.ProducerEpoch = s.current.id, s.current.epoch
	case req.Version >= 4:
		resp.ErrorCode = kerr.ProducerFenced.Code
	default:
		resp.ErrorCode = kerr.InvalidProducerEpoch.Code
	}
	return resp, true
}

// sees takes note of a pair that kfake gave out.
func (p *pairs) sees(req kmsg.Request, resp kmsg.Response) {
	var id string
	var s succession
	switch resp := resp.(type) {
	case *kmsg.InitProducerIDResponse:
		q := req.(*kmsg.InitProducerIDRequest)
		if q.TransactionalID == nil || resp.ErrorCode != 0 {
			return
		}
		id, s = *q.TransactionalID, succession{pair{resp.ProducerID, resp.ProducerEpoch}, pair{q.ProducerID, q.ProducerEpoch}}
	case *kmsg.EndTxnResponse:
		q := req.(*kmsg.EndTxnRequest)
		if resp.Version < 5 || resp.ErrorCode != 0 {
			return
		}
		id, s = q.TransactionalID, succession{pair{resp.ProducerID, resp.ProducerEpoch}, pair{q.ProducerID, q.ProducerEpoch}}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]succession{}
	}
	p.of[id] = s
}
