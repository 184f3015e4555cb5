package lead

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ottla/ottla/kafka"
)

// Token is a pair of producer id and epoch. As the token of a leadership it is
// the pair that its acquisition ended with. Tokens are compared for equality
// only: a later leader may well have the lower one.
type Token struct {
	ID    kafka.ProducerID
	Epoch kafka.ProducerEpoch
}

// NoToken is the pair of nobody.
var NoToken = Token{-1, -1}

// Valid reports whether both parts are there. No record holds another token.
func (t Token) Valid() bool { return t.ID >= 0 && t.Epoch >= 0 }

// String is "producerID:epoch" in decimal.
func (t Token) String() string {
	return strconv.FormatInt(int64(t.ID), 10) + ":" + strconv.FormatInt(int64(t.Epoch), 10)
}

// ParseToken reads what [Token.String] writes. Both parts must be there, in
// digits, and not negative.
func ParseToken(s string) (Token, error) {
	id, epoch, ok := strings.Cut(s, ":")
	p, err1 := strconv.ParseUint(id, 10, 63)
	e, err2 := strconv.ParseUint(epoch, 10, 15)
	if !ok || err1 != nil || err2 != nil {
		return NoToken, fmt.Errorf("ottla: %q is no token: it has the form producerID:epoch, such as 4242:7", s)
	}
	return Token{kafka.ProducerID(p), kafka.ProducerEpoch(e)}, nil
}
