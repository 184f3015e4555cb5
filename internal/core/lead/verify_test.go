package lead

import "testing"

func TestI9TheTableOfVerification(t *testing.T) {
	var (
		tok   = Token{5, 3}
		other = Token{7, 0}
		next  = Token{5, 4}
		tv1   = Reading{Led: true, Complete: true, Lease: Held{Lease: Lease{Member: "a", Token: tok}, Writer: tok, Pinned: true}}
		tv2   = Reading{Led: true, Complete: true, Lease: Held{Lease: Lease{Member: "j", Token: tok}, Writer: Token{5, 9}}}
		none  = Reading{Complete: true}
	)
	hidden := func(r Reading) Reading { r.Complete = false; return r }
	for _, c := range []struct {
		name  string
		tok   Token
		epoch Epoch
		read  Reading
		want  Verdict
		row   byte
	}{
		{"a: unknown id", tok, Epoch{NoToken, ""}, tv1, Superseded, 'a'},
		{"a: no epoch", tok, Epoch{Token{-1, -7}, StateEmpty}, none, Superseded, 'a'},
		{"b: vacant after a resign", tok, Epoch{tok, StateCompleteCommit}, none, Superseded, 'b'},
		{"b: maybe hidden", tok, Epoch{tok, StateCompleteCommit}, hidden(none), Indeterminate, 'b'},
		{"c: burned", tok, Epoch{Token{5, 5}, StateEmpty}, none, Superseded, 'c'},
		{"c: my own mint without a lease", tok, Epoch{tok, StateEmpty}, none, Indeterminate, 'c'},
		{"c: maybe hidden", tok, Epoch{Token{5, 5}, StateEmpty}, hidden(none), Indeterminate, 'c'},
		{"d: pinned holder", tok, Epoch{tok, StateCompleteCommit}, tv1, Authoritative, 'd'},
		{"d: while a renewal runs", tok, Epoch{tok, StateOngoing}, tv1, Authoritative, 'd'},
		{"d: and hidden records", tok, Epoch{tok, StateOngoing}, hidden(tv1), Authoritative, 'd'},
		{"d: another token", other, Epoch{tok, StateCompleteCommit}, tv1, Superseded, 'd'},
		{"d: by the batch's pair", tok, Epoch{Token{5, 9}, StateCompleteCommit}, tv2, Authoritative, 'd'},
		{"e: one epoch on", tok, Epoch{Token{5, 10}, StateCompleteCommit}, tv2, Authoritative, 'e'},
		{"e: maybe hidden", tok, Epoch{Token{5, 10}, StateCompleteCommit}, hidden(tv2), Indeterminate, 'e'},
		{"not e: one epoch on and empty is a challenger", tok, Epoch{Token{5, 10}, StateEmpty}, tv2, Indeterminate, 'f'},
		{"not e: one epoch on and aborted", tok, Epoch{Token{5, 10}, StateCompleteAbort}, tv2, Indeterminate, 'i'},
		{"not e: one epoch on and ongoing", tok, Epoch{Token{5, 10}, StateOngoing}, tv2, Indeterminate, 'h'},
		{"not e: a pinned holder's epoch never moves", tok, Epoch{next, StateCompleteCommit}, tv1, Superseded, 'g'},
		{"f: minted and not granted", tok, Epoch{next, StateEmpty}, tv1, Indeterminate, 'f'},
		{"g: TV2 with data transactions", tok, Epoch{Token{5, 200}, StateCompleteCommit}, tv2, Authoritative, 'g'},
		{"g: TV2 over a rotation", tok, Epoch{Token{2, 0}, StateCompleteCommit}, tv2, Authoritative, 'g'},
		{"g: another token", other, Epoch{Token{2, 0}, StateCompleteCommit}, tv2, Superseded, 'g'},
		{"g: maybe hidden", tok, Epoch{Token{2, 0}, StateCompleteCommit}, hidden(tv2), Indeterminate, 'g'},
		{"h: ongoing", tok, Epoch{other, StateOngoing}, tv1, Indeterminate, 'h'},
		{"h: prepared", tok, Epoch{other, "PrepareCommit"}, tv2, Indeterminate, 'h'},
		{"i: aborted", tok, Epoch{other, StateCompleteAbort}, tv1, Indeterminate, 'i'},
		{"i: aborted and never led", tok, Epoch{other, StateCompleteAbort}, none, Indeterminate, 'i'},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, why := Verify(c.tok, c.epoch, c.read)
			if got != c.want || why.Row != c.row || why.Reason == "" {
				t.Errorf("%v by row %c (%s), want %v by row %c", got, why.Row, why.Reason, c.want, c.row)
			}
		})
	}
}
