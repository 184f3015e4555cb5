package fetch

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// consumed is a rig that has read and handed out 0 to 99 in batches of epoch 4,
// by a leader of that epoch. Its next fetch is out.
func consumed(t *testing.T, cfg Config) *rig {
	r := newRig(t, cfg)
	r.m.Assign(map[kafka.TopicPartition]Start{tp0: AtOffset(0)})
	r.step()
	r.lead(1, 4)
	take[*LookupAction](r)
	r.answer("t", partAnswer{hw: 100, lso: 100, data: batches(spec{last: 99, epoch: 4})})
	if n := len(r.poll()); n != 100 {
		t.Fatalf("%d records", n)
	}
	return r
}

// lead makes a broker the leader of partition 0.
func (r *rig) lead(id kafka.NodeID, epoch kafka.LeaderEpoch) {
	r.t.Helper()
	ti := info("t", id)
	ti.Partitions[0].Epoch = epoch
	r.m.OnTopic(r.now, "t", ti)
	r.step()
}

// waitVet waits until a broker is asked for the ends of epochs.
func (r *rig) waitVet(id kafka.NodeID) {
	r.t.Helper()
	for range 5 {
		if b := r.m.brokers[id]; b != nil && b.vet != nil {
			return
		}
		r.wait()
	}
	r.t.Fatal("nothing is asked")
}

// The leader of a new epoch is asked where the epoch of what was read ends
// before anything is fetched from it. Mutations: follow without vet, readable
// without vetting.wanted.
func TestF36_B148TrueTruncationIsNoticed(t *testing.T) {
	r := consumed(t, testConfig())
	r.lead(2, 5)
	old := take[*FetchAction](r) // of the old leader
	if f, ok := maybe[*FetchAction](r); ok {
		t.Fatalf("broker %d is read before the position is known to be there", f.Broker)
	}
	r.m.OnFetch(r.now, old.ID, fetchAnswer("t", partAnswer{hw: 101, lso: 101, data: data(100, 100).build()}), nil)
	r.step()
	for range patientAfter + 1 { // however long it takes
		r.vetted(0, 75)
		r.waitVet(2)
		if f, ok := maybe[*FetchAction](r); ok {
			t.Fatalf("broker %d is read before the position is known to be there", f.Broker)
		}
	}
	q := r.vetted(80, 0)
	if q.LeaderEpoch != 4 || q.CurrentLeaderEpoch != 5 {
		t.Errorf("asked for the end of epoch %d with leader epoch %d", q.LeaderEpoch, q.CurrentLeaderEpoch)
	}
	n := r.m.News()
	loss := asError[*kafka.DataLossError](t, n.Err)
	if loss.Position != 100 || loss.Remaining != 80 || len(n.Resets) != 1 || n.Resets[0].New != 80 || n.Resets[0].Old != 100 {
		t.Errorf("%v, resets %+v", loss, n.Resets)
	}
	r.waitFetch()
	a := r.answer("t", partAnswer{hw: 150, lso: 150, data: batches(spec{base: 80, last: 149, epoch: 5})})
	if rp := a.Req.Topics[0].Partitions[0]; a.Broker != 2 || rp.FetchOffset != 80 || rp.CurrentLeaderEpoch != 5 {
		t.Errorf("fetch at broker %d of %+v", a.Broker, rp)
	}
	if os := r.offsets(); len(os) != 70 || os[0] != 80 {
		t.Errorf("offsets %v", os)
	}
	r.lead(1, 6)
	if q := r.vetted(150, 0); q.LeaderEpoch != 5 {
		t.Errorf("epoch %d", q.LeaderEpoch)
	}
	if r.err() != nil {
		t.Error("a loss where none was")
	}
}

// What is left before the loss has the epoch that the answer names: if the next
// leader lacks some of that too, before anything was read on, that is told as well.
// Mutation: back to the offset without an epoch.
func TestF36_F37ALossBehindALossIsTold(t *testing.T) {
	for name, lose := range map[string]func(r *rig){
		"the question": func(r *rig) {
			r.lead(2, 5)
			take[*FetchAction](r)
			a := take[*EpochAction](r)
			resp := epochResponse(tp0, 80, 0)
			resp.Topics[0].Partitions[0].LeaderEpoch = 3
			r.m.OnEpochs(r.now, a.ID, resp, nil)
			r.step()
		},
		"an answer": func(r *rig) { r.answer("t", partAnswer{hw: 150, lso: 150, diverge: 80, part: 3}) },
	} {
		r := consumed(t, testConfig())
		lose(r)
		asError[*kafka.DataLossError](t, r.err())
		r.m.News()
		r.lead(1, 6)
		r.waitVet(1)
		if q := r.vetted(60, 0); q.LeaderEpoch != 3 {
			t.Errorf("%s: asked for the end of epoch %d", name, q.LeaderEpoch)
		}
		if e := asError[*kafka.DataLossError](t, r.err()); e.Position != 80 || e.Remaining != 60 {
			t.Errorf("%s: %v", name, e)
		}
	}
}

// Policy fail stops there, others go on.
func TestF36UnderFailATruncationStopsThePartition(t *testing.T) {
	cfg := testConfig()
	cfg.Reset = ResetFail
	r := consumed(t, cfg)
	r.lead(2, 5)
	r.vetted(80, 0)
	if e := asError[*kafka.DataLossError](t, r.err()); e.Remaining != 80 {
		t.Errorf("%v", e)
	}
	if at, _ := r.m.At(tp0); !at.Stopped || at.Position != 100 {
		t.Errorf("%+v", at)
	}
}

// The variant of the Fetch answer itself. Mutation: no look at DivergingEpoch.
func TestF36_B148ADivergingEpochInAFetchAnswer(t *testing.T) {
	r := consumed(t, testConfig())
	r.answer("t", partAnswer{hw: 150, lso: 150, diverge: 80})
	if e := asError[*kafka.DataLossError](t, r.err()); e.Remaining != 80 || r.position(tp0) != 80 {
		t.Errorf("%v, position %d", e, r.position(tp0))
	}
}

// "Undefined", an error that no waiting mends and a broker without the API are no
// information: reading goes on where it was. Mutation: -1 taken for an offset.
func TestF36NoInformationIsNoLoss(t *testing.T) {
	for name, f := range map[string]func(r *rig){
		"undefined":    func(r *rig) { r.vetted(-1, 0) },
		"unauthorized": func(r *rig) { r.vetted(0, 29) },
		"no such api": func(r *rig) {
			r.m.OnEpochs(r.now, take[*EpochAction](r).ID, nil, &kafka.VersionError{API: 23})
		},
		"beyond": func(r *rig) { r.vetted(500, 0) },
	} {
		r := consumed(t, testConfig())
		r.lead(2, 5)
		take[*FetchAction](r)
		f(r)
		r.step()
		if a := take[*FetchAction](r); a.Broker != 2 || a.Req.Topics[0].Partitions[0].FetchOffset != 100 {
			t.Errorf("%s: %+v", name, a.Req)
		}
		if n := r.m.News(); n.Err != nil || len(n.Resets) > 0 {
			t.Errorf("%s: %v %v", name, n.Err, n.Resets)
		}
	}
}

// 74 refreshes metadata, 75 waits, at Fetch and at the question; the user sees
// neither, and the position stays.
func TestF36_B148StaleEpochsAreNotSeen(t *testing.T) {
	for _, code := range []int16{74, 75} {
		r := consumed(t, testConfig())
		r.answer("t", partAnswer{code: code})
		if l, ok := maybe[*LookupAction](r); ok != (code == 74) || ok && len(l.Stale) != 1 {
			t.Errorf("code %d: look-up %v", code, ok)
		}
		r.lead(2, 5)
		r.wait()
		r.vetted(0, code)
		if _, ok := maybe[*LookupAction](r); ok != (code == 74) {
			t.Errorf("code %d at the question: look-up %v", code, ok)
		}
		r.lead(2, 6)
		r.waitVet(2)
		r.vetted(100, 0)
		r.waitFetch()
		if a := take[*FetchAction](r); a.Req.Topics[0].Partitions[0].FetchOffset != 100 {
			t.Errorf("code %d: %+v", code, a.Req)
		}
		if n := r.m.News(); n.Err != nil || len(n.Resets) > 0 {
			t.Errorf("code %d: %v %v", code, n.Err, n.Resets)
		}
	}
}

// R4, F37: a marker of a later epoch, as the coordinator's leader writes it, and
// filtered batches count: the question is for the epoch of the last batch passed.
// Mutation: tail moved by data only.
func TestR4_F37TheEpochOfAMarkerIsPassedToo(t *testing.T) {
	r := newRig(t, testConfig())
	r.m.Assign(map[kafka.TopicPartition]Start{tp0: AtOffset(0)})
	r.step()
	r.lead(1, 6)
	late := mark(record.Abort, 7, 5)
	late.epoch = 6
	r.answer("t", partAnswer{hw: 6, lso: 6, aborted: abortedList(7, 0), data: batches(spec{last: 4, pid: 7, epoch: 4}, late)})
	r.lead(2, 8)
	if q := r.vetted(6, 0); q.LeaderEpoch != 6 {
		t.Errorf("asked for the end of epoch %d, which is before the marker", q.LeaderEpoch)
	}
	if r.err() != nil {
		t.Error("a marker looks like loss")
	}
}

// What was fetched and not seen of the lost part is dropped, the rest is handed
// out, and nobody is alarmed. Mutation: truncated without trim.
func TestF36WhatTheUserHasNotSeenIsDroppedInSilence(t *testing.T) {
	r := consumed(t, testConfig())
	r.answer("t", partAnswer{hw: 120, lso: 120, data: batches(spec{base: 100, last: 104, epoch: 4}, spec{base: 105, last: 109, epoch: 4})})
	l, _ := r.m.Take(r.now) // a range is in the middle of the first
	used := r.m.shelf.used
	r.lead(2, 5)
	r.vetted(105, 0)
	if used == 0 || r.m.shelf.used != used { // the frame is one
		t.Errorf("%d bytes wait, before %d", r.m.shelf.used, used)
	}
	r.m.Return(l, 105, 105)
	r.step()
	r.vetted(105, 0) // asked again, as the batch was not known to be whole
	r.check()
	if n := r.m.News(); n.Err != nil || len(n.Resets) > 0 {
		t.Errorf("%v %v", n.Err, n.Resets)
	}
	if len(r.poll()) > 0 || r.position(tp0) != 105 || r.m.shelf.used != 0 {
		t.Errorf("position %d, %d bytes wait", r.position(tp0), r.m.shelf.used)
	}
}

// What the user is in the middle of is lost in part, and more was fetched behind
// it: the question that is asked when he is through is about the epoch of what he
// read. Without one a broker answers that it does not know, and the loss is
// passed over. Mutation: trim without the epoch of what is lent.
func TestF36_F37ALossWithinWhatTheUserIsReadingIsTold(t *testing.T) {
	r := consumed(t, testConfig())
	r.answer("t", partAnswer{hw: 120, lso: 120, data: batches(spec{base: 100, last: 104, epoch: 4}, spec{base: 105, last: 109, epoch: 4})})
	l, _ := r.m.Take(r.now)
	r.lead(2, 5)
	r.vetted(102, 0)
	r.m.Return(l, 105, 105)
	r.step()
	if q := r.vetted(102, 0); q.LeaderEpoch != 4 {
		t.Errorf("asked for the end of epoch %d", q.LeaderEpoch)
	}
	if e := asError[*kafka.DataLossError](t, r.err()); e.Position != 105 || e.Remaining != 102 || r.position(tp0) != 102 {
		t.Errorf("%v, position %d", e, r.position(tp0))
	}
}

// A position above the log end, at the same leader: epochs say where to go on,
// the log end would skip what was written since. Mutation: onCode without the
// question.
func TestF33EpochsDecideAboveTheLogEnd(t *testing.T) {
	r := consumed(t, testConfig())
	r.answer("t", partAnswer{code: 1})
	r.vetted(80, 0)
	if e := asError[*kafka.DataLossError](t, r.err()); e.Position != 100 || e.Remaining != 80 || r.position(tp0) != 80 {
		t.Errorf("%v, position %d", e, r.position(tp0))
	}
}

// A seek to what another reader finished brings the epoch with it. Mutations: the
// epoch of a start forgotten; begin without vet.
func TestF36ACommittedEpochIsComparedToo(t *testing.T) {
	r := newRig(t, testConfig())
	r.m.Assign(map[kafka.TopicPartition]Start{tp0: AtProgress(Progress{Offset: 100, Epoch: 4})})
	r.step()
	r.lead(2, 5)
	if q := r.vetted(80, 0); q.LeaderEpoch != 4 {
		t.Errorf("epoch %d", q.LeaderEpoch)
	}
	if e := asError[*kafka.DataLossError](t, r.err()); e.Remaining != 80 {
		t.Errorf("%v", e)
	}
	r.m.Seek(tp0, AtProgress(Progress{Offset: 70, Epoch: 3}))
	r.step()
	if q := r.vetted(70, 0); q.LeaderEpoch != 3 {
		t.Errorf("epoch %d", q.LeaderEpoch)
	}
	r.m.Seek(tp0, AtOffset(60))
	r.step()
	if _, ok := maybe[*EpochAction](r); ok {
		t.Error("a plain offset has no epoch to compare")
	}
}

// One question a leader, and an answer that a seek overtook means nothing (B149d).
// Mutation: invalidate without vetting.asked.
func TestF36_F35_B149AnAnswerThatASeekOvertook(t *testing.T) {
	r := newRig(t, testConfig())
	r.m.Assign(map[kafka.TopicPartition]Start{
		tp0: AtProgress(Progress{Offset: 100, Epoch: 4}), tp("t", 1): AtProgress(Progress{Offset: 100, Epoch: 4}),
	})
	r.step()
	ti := info("t", 2, 2)
	ti.Partitions[0].Epoch, ti.Partitions[1].Epoch = 5, 5
	r.m.OnTopic(r.now, "t", ti)
	r.step()
	a := take[*EpochAction](r)
	if ps := a.Req.Topics[0].Partitions; len(ps) != 2 {
		t.Fatalf("%+v", ps)
	}
	r.m.Seek(tp0, AtOffset(90))
	resp := epochResponse(tp0, 80, 0)
	second := resp.Topics[0].Partitions[0]
	second.Partition = 1
	resp.Topics[0].Partitions = append(resp.Topics[0].Partitions, second)
	r.m.OnEpochs(r.now, a.ID, resp, nil)
	r.step()
	if r.position(tp0) != 90 || r.position(tp("t", 1)) != 80 {
		t.Errorf("positions %d and %d", r.position(tp0), r.position(tp("t", 1)))
	}
	var loss *kafka.DataLossError
	if n := r.m.News(); len(n.Resets) != 1 || !errors.As(n.Err, &loss) || loss.Partition != 1 {
		t.Errorf("%+v", n)
	}
}

// An answer that leaves a partition out is asked for again, with patience, and a
// broker that fails is a broker that fails.
func TestF36AnAnswerWithoutThePartition(t *testing.T) {
	r := consumed(t, testConfig())
	r.lead(2, 5)
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	r.m.OnEpochs(r.now, take[*EpochAction](r).ID, resp, nil)
	r.step()
	if _, ok := maybe[*EpochAction](r); ok {
		t.Fatal("asked again at once")
	}
	r.wait()
	r.m.OnEpochs(r.now, take[*EpochAction](r).ID, nil, errors.New("lost"))
	r.step()
	if f := r.m.Failures(); len(f) != 1 || f[0].Broker != 2 {
		t.Errorf("%v", f)
	}
	r.lead(2, 5)
	r.waitVet(2)
	r.vetted(100, 0)
	if r.err() != nil {
		t.Error("told to the user")
	}
}
