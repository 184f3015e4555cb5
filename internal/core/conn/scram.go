package conn

import (
	"encoding/base64"
	"strconv"
	"strings"
)

// Bounds of the iteration count that a SCRAM server may ask for. Kafka itself
// uses 4,096 to 16,384; RFC 7677 asks for at least 4,096.
const (
	minIterations = 4096
	maxIterations = 1 << 20
)

// scramGuard checks what a SCRAM server sends before the mechanism sees it, so
// that no key is derived for a hostile server.
type scramGuard struct {
	on    bool
	nonce string // the client's
	round int
}

// check says what is wrong with the server's message, "" if nothing is.
func (g *scramGuard) check(msg []byte) string {
	if !g.on {
		return ""
	}
	g.round++
	switch g.round {
	case 1:
		return g.checkFirst(string(msg))
	case 2:
		return checkFinal(string(msg))
	default:
		return "the server goes on after its final message"
	}
}

// checkFirst holds the server-first-message of RFC 5802: r=, s=, i=, then
// extensions, none twice.
func (g *scramGuard) checkFirst(msg string) string {
	seen := map[byte]string{}
	for i, part := range strings.Split(msg, ",") {
		if len(part) < 2 || part[1] != '=' {
			return "the server's first message has a part that is no attribute"
		}
		name := part[0]
		if name == 'm' {
			return "the server demands an extension that this client does not know (m=)"
		}
		if _, twice := seen[name]; twice {
			return "the server's first message repeats the attribute " + string(name) + "="
		}
		if i < 3 && name != "rsi"[i] {
			return "the server's first message has " + string(name) + "= where " + "rsi"[i:i+1] + "= is due"
		}
		seen[name] = part[2:]
	}
	if len(seen) < 3 {
		return "the server's first message lacks a nonce, a salt or an iteration count"
	}
	if g.nonce == "" || !strings.HasPrefix(seen['r'], g.nonce) {
		return "the server's nonce does not begin with this client's"
	}
	if seen['r'] == g.nonce {
		return "the server's nonce adds nothing to this client's"
	}
	if salt, err := base64.StdEncoding.Strict().DecodeString(seen['s']); err != nil || len(salt) == 0 {
		return "the server's salt is not base64"
	}
	n, err := strconv.ParseInt(seen['i'], 10, 64)
	if err != nil || n < minIterations || n > maxIterations {
		return "the server asks for " + clip(seen['i']) + " iterations; " +
			itoa(minIterations) + " to " + itoa(maxIterations) + " are accepted"
	}
	return ""
}

// checkFinal holds the server-final-message: v= or e=.
func checkFinal(msg string) string {
	first, _, _ := strings.Cut(msg, ",")
	switch {
	case strings.HasPrefix(first, "e="):
		return "the server refused: " + printable([]byte(first[2:]))
	case !strings.HasPrefix(first, "v=") || len(first) == 2:
		return "the server's final message has no signature"
	}
	if _, err := base64.StdEncoding.DecodeString(first[2:]); err != nil {
		return "the server's signature is not base64"
	}
	return ""
}

// attribute is the value of the first attribute of that name in a SCRAM
// message, empty if there is none.
func attribute(msg string, name byte) string {
	for part := range strings.SplitSeq(msg, ",") {
		if len(part) >= 2 && part[0] == name && part[1] == '=' {
			return part[2:]
		}
	}
	return ""
}

func clip(s string) string {
	return strconv.Quote(s[:min(len(s), 20)])
}
