package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/kafka"
)

// A broker chooses its messages and the names of its mechanisms: none of it
// steers the terminal, wherever it is told.
func TestTextOfABrokerDoesNotSteerTheTerminal(t *testing.T) {
	hostile := "a\x1b]0;title\a\x1b[2Jb\u009b31m\x9b1m\u202eevil\x00\x7f\r\nc\té"
	var out bytes.Buffer
	a := &app{notes: newNotes(&out)}
	a.shared.verbose = 1
	a.report(&kafka.BrokerError{Code: kerr.PolicyViolation.Code, Message: hostile})
	a.report(&kafka.AuthError{Addr: "b:1", Mechanism: "PLAIN", Offered: []string{hostile}})
	a.notes.terminal = true
	fmt.Fprint(a.notes, hostile)
	text := out.String() + plainCell(hostile)
	for _, bad := range []string{"\x1b", "\a", "\u009b", "\x9b", "\u202e", "\x00", "\x7f", "\r"} {
		if strings.Contains(text, bad) && bad != "\x9b" || strings.ToValidUTF8(text, "") != text {
			t.Errorf("%q went out in %q", bad, text)
		}
	}
	if want := `a\x1b]0;title\a\x1b[2Jb\u009b31m\x9b1m\u202eevil\x00\x7f\r` + "\nc\té"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("%q, want %q at its end", out.String(), want)
	}
	if got := plainCell("grün\tweiß"); got != `grün\tweiß` {
		t.Errorf("%q", got)
	}
}
