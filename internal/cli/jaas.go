package cli

import (
	"errors"
	"fmt"
	"strings"
)

// jaasLogin is the one login module of a sasl.jaas.config.
type jaasLogin struct {
	module  string // its class name without the package
	options map[string]string
}

// parseJAAS reads the value of sasl.jaas.config: CLASS FLAG name=value …;
// with values quoted or not. Its errors never hold a value.
func parseJAAS(text string) (jaasLogin, error) {
	tokens, err := jaasTokens(text)
	if err != nil {
		return jaasLogin{}, err
	}
	if len(tokens) < 3 || tokens[len(tokens)-1] != ";" {
		return jaasLogin{}, errors.New("expected CLASS required name=\"value\" …; with a semicolon at its end")
	}
	module := tokens[0][strings.LastIndexByte(tokens[0], '.')+1:]
	switch strings.ToLower(tokens[1]) {
	case "required", "requisite", "sufficient", "optional":
	default:
		return jaasLogin{}, fmt.Errorf("%s is followed by no control flag (required)", module)
	}
	login := jaasLogin{module: module, options: map[string]string{}}
	rest := tokens[2 : len(tokens)-1]
	for len(rest) > 0 {
		if len(rest) < 3 || rest[1] != "=" || rest[0] == ";" || rest[2] == ";" {
			return jaasLogin{}, fmt.Errorf("option %d of %s is not name=\"value\"", len(login.options)+1, module)
		}
		login.options[rest[0]] = rest[2]
		rest = rest[3:]
	}
	return login, nil
}

// jaasTokens cuts the text into words, quoted texts, = and ;.
func jaasTokens(s string) ([]string, error) {
	var tokens []string
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			i++
		case c == '=' || c == ';':
			tokens = append(tokens, string(c))
			i++
		case c == '"' || c == '\'':
			text, n, err := jaasQuoted(s[i:])
			if err != nil {
				return nil, err
			}
			tokens = append(tokens, text)
			i += n
		default:
			n := strings.IndexAny(s[i:], " \t\r\n=;\"'")
			if n < 0 {
				n = len(s) - i
			}
			tokens = append(tokens, s[i:i+n])
			i += n
		}
	}
	return tokens, nil
}

// jaasQuoted reads the quoted text that s begins with, and its length.
func jaasQuoted(s string) (string, int, error) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == s[0]:
			return b.String(), i + 1, nil
		case s[i] == '\\' && i+1 < len(s):
			i++
			if at := strings.IndexByte("nrt", s[i]); at >= 0 {
				b.WriteByte("\n\r\t"[at])
			} else {
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(s[i])
		}
	}
	return "", 0, errors.New("a quoted text has no end")
}
