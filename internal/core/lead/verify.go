package lead

// Verdict is what an observer may conclude about a token.
type Verdict uint8

const (
	Indeterminate Verdict = iota // nobody can tell at the moment
	Authoritative                // the token's holder leads
	Superseded                   // it does not
)

// String is the verdict in one word.
func (v Verdict) String() string {
	return [...]string{"indeterminate", "authoritative", "superseded"}[v]
}

// The states of a transaction as a coordinator names them.
const (
	StateEmpty          = "Empty"
	StateOngoing        = "Ongoing"
	StateCompleteCommit = "CompleteCommit"
	StateCompleteAbort  = "CompleteAbort"
	StatePrepare        = "Prepare" // the beginning of those in which an end is being written
)

// Epoch is what the coordinator of the role's transactional id says.
type Epoch struct {
	Pair  Token // NoToken: the id is not known, or has no epoch
	State string
}

// Known reports whether the role was ever led, as far as the coordinator knows.
func (e Epoch) Known() bool { return e.Pair.Valid() }

// Reading is what the log says after the coordinator was asked.
type Reading struct {
	Lease    Held
	Led      bool // there is a lease
	Complete bool // every record written before the question was read
}

// Leads is who leads, as far as it can be told.
type Leads uint8

const (
	Unclear   Leads = iota // cannot be told
	Nobody                 // the role is vacant, or its last holder is fenced
	TheHolder              // the holder of the newest lease
)

// Conclusion is who leads and why that is known. Row is the row of the table
// of rules that decided, for tests and for people who look closely.
type Conclusion struct {
	Leads  Leads
	Row    byte
	Reason string
}

// Conclude tells who leads from the coordinator's answer and the newest lease
// read after it. It holds for holders of any language and of both transaction
// protocols. Pairs are compared for equality only.
func Conclude(e Epoch, r Reading) Conclusion {
	switch {
	case !e.Known():
		return Conclusion{Nobody, 'a', "the coordinator knows no epoch of the role"}
	case r.Led && (r.Lease.Token == e.Pair || r.Lease.Writer == e.Pair):
		return Conclusion{TheHolder, 'd', "the coordinator's pair is that of the newest lease"}
	}
	c := Conclusion{Unclear, 'h', "a transaction of the role is under way"}
	switch e.State {
	case StateCompleteCommit:
		c = concludeCommitted(e, r)
	case StateEmpty:
		if r.Led {
			return Conclusion{Unclear, 'f', "somebody took a new epoch and has not granted itself the lease; the pair of the newest lease is fenced"}
		}
		c = Conclusion{Nobody, 'c', "there is no lease, and no transaction since the last epoch was taken"}
	case StateCompleteAbort:
		return Conclusion{Unclear, 'i', "the last transaction of the role was aborted: by its leader, by a failed grant or by a timeout"}
	}
	if c.Row != 'h' && !r.Complete {
		return Conclusion{Unclear, c.Row, "an open transaction hides the newest records of the partition"}
	}
	return c
}

// concludeCommitted is about an epoch whose last transaction was committed.
func concludeCommitted(e Epoch, r Reading) Conclusion {
	switch {
	case !r.Led:
		return Conclusion{Nobody, 'b', "the leader resigned"}
	case r.Lease.Pinned:
		return Conclusion{Nobody, 'g', "a producer without a lease uses the role's name as its transactional id; the newest lease is fenced"}
	case e.Pair == Token{r.Lease.Writer.ID, r.Lease.Writer.Epoch + 1}:
		return Conclusion{TheHolder, 'e', "the coordinator's pair is the one after that of the newest lease"}
	default:
		return Conclusion{TheHolder, 'g', "the last transaction is of the latest epoch, and its first one was the lease"}
	}
}

// Verify judges a token by a conclusion. Advice, not a fence: the answer may
// be old by the time it is used.
func Verify(tok Token, e Epoch, r Reading) (Verdict, Conclusion) {
	c := Conclude(e, r)
	switch c.Leads {
	case TheHolder:
		if tok == r.Lease.Token {
			return Authoritative, c
		}
		return Superseded, c
	case Nobody:
		if c.Row == 'c' && tok == e.Pair {
			c.Reason = "the token's epoch was taken and no lease granted yet"
			return Indeterminate, c
		}
		return Superseded, c
	}
	return Indeterminate, c
}
