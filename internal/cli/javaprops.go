package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// property is one entry of a properties file.
type property struct {
	name, value string
	line        int // where its name stands, from 1
}

// parseJavaProperties reads the format of java.util.Properties: comments with
// # and !, separators =, : and white space, lines continued by a backslash,
// escapes \t \n \r \f \uXXXX. A file that is not UTF-8 is read as ISO-8859-1.
func parseJavaProperties(data []byte) ([]property, error) {
	text := string(data)
	if !utf8.ValidString(text) {
		runes := make([]rune, len(data))
		for i, b := range data {
			runes[i] = rune(b)
		}
		text = string(runes)
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	var props []property
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		first := i + 1
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continued(line) {
			line = line[:len(line)-1]
			if i+1 == len(lines) {
				break
			}
			i++
			line += strings.TrimLeft(lines[i], " \t\f")
		}
		name, value := splitProperty(line)
		p := property{line: first}
		var err error
		if p.name, err = unescapeProperty(name); err == nil {
			p.value, err = unescapeProperty(value)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", first, err)
		}
		props = append(props, p)
	}
	return props, nil
}

// continued reports whether a line ends with an odd number of backslashes.
func continued(line string) bool {
	n := len(line) - len(strings.TrimRight(line, `\`))
	return n%2 == 1
}

// splitProperty cuts a logical line at its separator.
func splitProperty(line string) (name, value string) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			continue
		}
		if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	name, rest := line[:end], strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	return name, rest
}

// unescapeProperty undoes the escapes of a name or a value.
func unescapeProperty(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	var units []uint16 // of \u escapes in a row
	spill := func() {
		b.WriteString(string(utf16.Decode(units)))
		units = units[:0]
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			spill()
			if s[i] != '\\' {
				b.WriteByte(s[i])
			}
			continue
		}
		i++
		if s[i] == 'u' {
			if i+5 > len(s) {
				return "", fmt.Errorf(`\u needs four hexadecimal digits`)
			}
			n, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf(`\u%s: not four hexadecimal digits`, s[i+1:i+5])
			}
			units = append(units, uint16(n))
			i += 4
			continue
		}
		spill()
		if at := strings.IndexByte("tnrf", s[i]); at >= 0 {
			b.WriteByte("\t\n\r\f"[at])
		} else {
			b.WriteByte(s[i])
		}
	}
	spill()
	return b.String(), nil
}
