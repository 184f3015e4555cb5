package sim

import (
	"time"

	"github.com/ottla/ottla/internal/sim/frame"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// End is what happens to the connection after an answer.
type End uint8

// The ends of an answer.
const (
	Keep        End = iota // the connection goes on
	Close                  // it is closed
	Reset                  // it is reset
	StopReading            // it stays open, and nothing more is read from it
)

// Answer is what a Handler does with a request. The zero value answers
// nothing and goes on reading, as for acks=0.
type Answer struct {
	Response    kmsg.Response   // encoded at the version it has
	Body        []byte          // or: these bytes behind a response header
	Raw         []byte          // or: these bytes on the stream as they are
	Correlation *int32          // nil = the request's
	Delay       time.Duration   // before the answer
	Until       <-chan struct{} // before the answer: until this is closed
	OutOfOrder  bool            // Delay and Until do not hold up later requests
	Cut         int             // of the frame, only its first Cut bytes; 0 = all
	End         End             // afterwards
}

// Reply answers with resp.
func Reply(resp kmsg.Response) Answer { return Answer{Response: resp} }

// Handler answers the requests of one API key. It runs on the goroutine of
// the request's connection and may block there; Request.Done tells when not to
// any more.
type Handler func(*Request) Answer

// encode is the bytes of an answer to r.
func (a Answer) encode(r frame.Request) []byte {
	correlation := r.Correlation
	if a.Correlation != nil {
		correlation = *a.Correlation
	}
	var out []byte
	switch {
	case a.Raw != nil:
		out = a.Raw
	case a.Body != nil:
		out = frame.AppendBody(nil, r, correlation, a.Body)
	case a.Response != nil:
		out = frame.AppendResponse(nil, correlation, a.Response)
	}
	if a.Cut > 0 {
		out = out[:min(a.Cut, len(out))]
	}
	return out
}
