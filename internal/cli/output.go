package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

// printer writes data to stdout. It is used by one goroutine.
type printer struct {
	to       io.Writer
	out      *bufio.Writer
	terminal bool
	color    bool
	json     bool // -o json
}

func newPrinter(w io.Writer) *printer {
	tty := isTerminal(w)
	return &printer{
		to:       w,
		out:      bufio.NewWriterSize(pipeEnd{w}, 64<<10),
		terminal: tty,
		color:    tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

// pipeEnd names the end of a pipe whose reader went away.
type pipeEnd struct{ w io.Writer }

func (p pipeEnd) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return n, errClosedPipe
	}
	if err != nil {
		return n, fmt.Errorf("writing the output: %w", err)
	}
	return n, nil
}

// Write buffers b.
func (p *printer) Write(b []byte) (int, error) { return p.out.Write(b) }

// flush hands what is buffered to the reader.
func (p *printer) flush() error { return p.out.Flush() }

// check finds out whether the reader is still there, for a command that has
// nothing to write for long.
func (p *printer) check() error {
	if hasNoReader(p.to) {
		return errClosedPipe
	}
	return nil
}

// printf writes one line.
func (p *printer) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(p.out, format+"\n", args...)
	return err
}

// document writes v as one JSON document: indented on a terminal, one line
// elsewhere.
func (p *printer) document(v any) error {
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	if p.terminal {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// table writes rows: aligned below their heads on a terminal, tab-separated and
// without heads in a pipe.
func (p *printer) table(heads []string, rows [][]string) error {
	if !p.terminal {
		for _, row := range rows {
			cells := make([]string, len(row))
			for i, c := range row {
				cells[i] = plainCell(c)
			}
			if err := p.printf("%s", strings.Join(cells, "\t")); err != nil {
				return err
			}
		}
		return nil
	}
	widths := make([]int, len(heads))
	for i, h := range heads {
		widths[i] = utf8.RuneCountInString(h)
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(plainCell(row[i])))
		}
	}
	head := aligned(heads, widths)
	if p.color {
		head = "\x1b[1m" + head + "\x1b[0m"
	}
	if err := p.printf("%s", head); err != nil {
		return err
	}
	for _, row := range rows {
		if err := p.printf("%s", aligned(row, widths)); err != nil {
			return err
		}
	}
	return nil
}

// aligned pads the cells of a row, the last one not.
func aligned(cells []string, widths []int) string {
	var b strings.Builder
	for i, c := range cells {
		c = plainCell(c)
		b.WriteString(c)
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
		}
	}
	return b.String()
}

// plainCell keeps a cell on its line and in its column.
func plainCell(s string) string { return visible(s, "") }

// visible writes what would steer a terminal as an escape: control characters,
// those that change the direction of text or take no room, and bytes that are not
// UTF-8. A broker chooses what its messages hold. Characters in keep stay.
func visible(s, keep string) string {
	steers := func(r rune) bool {
		return (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) && !strings.ContainsRune(keep, r)
	}
	if utf8.ValidString(s) && !strings.ContainsFunc(s, steers) {
		return s
	}
	var b strings.Builder
	for at := 0; at < len(s); {
		r, n := utf8.DecodeRuneInString(s[at:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[at])
		case steers(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		at += n
	}
	return b.String()
}

// notes writes everything that is not data to stderr: errors, warnings,
// progress. It is used by one goroutine. What was not drawn by this side comes out
// without characters that steer a terminal.
type notes struct {
	w        io.Writer
	terminal bool
	quiet    bool // -q: no progress

	drawn bool      // a progress line is on the screen
	next  time.Time // when the next one may be drawn
}

func newNotes(w io.Writer) *notes { return &notes{w: w, terminal: isTerminal(w)} }

// Write passes b on behind a cleared progress line.
func (n *notes) Write(b []byte) (int, error) {
	n.endProgress()
	if _, err := io.WriteString(n.w, visible(string(b), "\n\t")); err != nil {
		return 0, err
	}
	return len(b), nil
}

// printf writes one line.
func (n *notes) printf(format string, args ...any) {
	fmt.Fprintf(n, format+"\n", args...)
}

// progress draws a line over the last one, at most five times a second, only
// on a terminal and not with -q.
func (n *notes) progress(now time.Time, line func() string) {
	if !n.terminal || n.quiet || now.Before(n.next) {
		return
	}
	n.next = now.Add(200 * time.Millisecond)
	n.drawn = true
	fmt.Fprintf(n.w, "\r\x1b[K%s", visible(line(), ""))
}

// endProgress wipes the progress line.
func (n *notes) endProgress() {
	if n.drawn {
		n.drawn = false
		fmt.Fprint(n.w, "\r\x1b[K")
	}
}
