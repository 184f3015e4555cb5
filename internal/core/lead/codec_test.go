package lead

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden are the published vectors of the contract and those derived from its
// layout.
var golden = []struct {
	name string
	hex  string
	key  *Key
	reg  *Registration
	held *Lease
}{
	{"registration key", "0000 0000 000A 636F6E74726F6C6C6572 0006 6E6F64652D31", &Key{KindRegistration, "controller", "node-1"}, nil, nil},
	{"lease key", "0000 0001 000A 636F6E74726F6C6C6572 0000", &Key{KindLease, "controller", ""}, nil, nil},
	{"registration value", "0000 0006 6E6F64652D31 0000018BCFE56800", nil, &Registration{"node-1", 1700000000000}, nil},
	{"lease value", "0000 0006 6E6F64652D31 0000000000001092 0007 0000018BCFE56800 0000018BCFE5DD30", nil, nil, &Lease{"node-1", Token{4242, 7}, 1700000000000, 1700000030000}},
	{"registration key a m", "0000 0000 0001 61 0001 6D", &Key{KindRegistration, "a", "m"}, nil, nil},
	{"lease key a", "0000 0001 0001 61 0000", &Key{KindLease, "a", ""}, nil, nil},
	{"registration key with accents", "0000 0000 0005 72C3B46C65 0007 6EC59375642D31", &Key{KindRegistration, "rôle", "nœud-1"}, nil, nil},
	{"lease key with accents", "0000 0001 0005 72C3B46C65 0000", &Key{KindLease, "rôle", ""}, nil, nil},
	{"registration at 0", "0000 0001 6D 0000000000000000", nil, &Registration{"m", 0}, nil},
	{"registration at -1", "0000 0001 6D FFFFFFFFFFFFFFFF", nil, &Registration{"m", -1}, nil},
	{"lease of zeros", "0000 0001 6D 0000000000000000 0000 0000000000000000 0000000000000000", nil, nil, &Lease{"m", Token{0, 0}, 0, 0}},
	{"lease of extremes", "0000 0001 6D 7FFFFFFFFFFFFFFF 7FFF FFFFFFFFFFFFFFFF 7FFFFFFFFFFFFFFF", nil, nil, &Lease{"m", Token{math.MaxInt64, math.MaxInt16}, -1, math.MaxInt64}},
	{"lease node-2", "0000 0006 6E6F64652D32 0000000000000005 0000 0000018BCFE5DD30 0000018BCFE65260", nil, nil, &Lease{"node-2", Token{5, 0}, 1700000030000, 1700000060000}},
}

func TestA2EncoderAndDecoderAgreeWithTheVectors(t *testing.T) {
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			want := unhex(t, g.hex)
			var got []byte
			switch {
			case g.key != nil:
				got = g.key.Append(nil)
				if k, err := DecodeKey(want); err != nil || k != *g.key {
					t.Errorf("decoded %+v, %v", k, err)
				}
			case g.reg != nil:
				got = g.reg.Append(nil)
				if r, err := DecodeRegistration(want); err != nil || r != *g.reg {
					t.Errorf("decoded %+v, %v", r, err)
				}
			default:
				got = g.held.Append(nil)
				if l, err := DecodeLease(want); err != nil || l != *g.held {
					t.Errorf("decoded %+v, %v", l, err)
				}
			}
			if !bytes.Equal(got, want) {
				t.Errorf("encoded %x, want %x", got, want)
			}
		})
	}
	long := strings.Repeat("r", MaxName)
	key := Key{KindRegistration, long, strings.Repeat("m", MaxName)}.Append(nil)
	if len(key) != 506 || !bytes.HasPrefix(key, unhex(t, "0000 0000 00F9 7272")) {
		t.Errorf("the largest registration key has %d bytes and begins with %x", len(key), key[:8])
	}
	lease := Key{KindLease, long, ""}.Append(nil)
	value := Lease{Member: long}.Append(nil)
	reg := Registration{Member: long}.Append(nil)
	if len(lease) != 257 || len(value) != 279 || len(reg) != 261 {
		t.Errorf("largest lease key %d, lease value %d, registration value %d bytes; want 257, 279, 261", len(lease), len(value), len(reg))
	}
	if got := (Key{KindLease, "a", "whatever"}).Append(nil); !bytes.Equal(got, unhex(t, "0000 0001 0001 61 0000")) {
		t.Errorf("a lease key with a member encodes as %x: the member must be empty", got)
	}
}

func TestA2DecodeTurnsEncodeBack(t *testing.T) {
	name := rapid.Custom(func(t *rapid.T) string {
		s := rapid.StringN(1, 80, MaxName).Draw(t, "name")
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		k := Key{Kind(rapid.IntRange(0, 1).Draw(t, "kind")), name.Draw(t, "role"), name.Draw(t, "member")}
		got, err := DecodeKey(k.Append(nil))
		if k.Kind == KindLease {
			k.Member = ""
		}
		if err != nil || got != k {
			t.Fatalf("%+v became %+v, %v", k, got, err)
		}
		l := Lease{name.Draw(t, "holder"), Token{}, 0, 0}
		l.Token.ID = tokenID(rapid.Int64Range(0, math.MaxInt64).Draw(t, "id"))
		l.Token.Epoch = tokenEpoch(rapid.Int16Range(0, math.MaxInt16).Draw(t, "epoch"))
		l.Granted, l.Deadline = stamp(rapid.Int64().Draw(t, "granted")), stamp(rapid.Int64().Draw(t, "deadline"))
		if back, err := DecodeLease(l.Append(nil)); err != nil || back != l {
			t.Fatalf("%+v became %+v, %v", l, back, err)
		}
		r := Registration{l.Member, l.Granted}
		if back, err := DecodeRegistration(r.Append(nil)); err != nil || back != r {
			t.Fatalf("%+v became %+v, %v", r, back, err)
		}
	})
}

func TestA3TheDecoderRejectsAndNamesThePart(t *testing.T) {
	keys := map[string]string{
		"empty": "", "one byte": "00", "three bytes": "000000", "version 1": "0001 0000 0001 61 0001 6D", "kind 9": "0000 0009 0001 61 0000",
		"negative length": "0000 0000 FFFF 0000", "length past end": "0000 0000 7FFF 61", "role not UTF-8": "0000 0000 0001 FF 0001 6D",
		"registration with empty member": "0000 0000 0001 61 0000", "lease with a member": "0000 0001 0001 61 0001 78", "empty role": "0000 0001 0000 0000",
		"long role": "0000 0001 00FA " + strings.Repeat("72", 250) + " 0000",
	}
	for name, h := range keys {
		if k, err := DecodeKey(unhex(t, h)); !rejects(err, PartKey) {
			t.Errorf("%s: %+v, %v", name, k, err)
		}
	}
	registrations := map[string]string{"empty": "", "version 1": "0001 0001 6D 0000000000000000", "no member": "0000 0000 0000000000000000", "negative length": "0000 8000 0000000000000000"}
	for name, h := range registrations {
		if r, err := DecodeRegistration(unhex(t, h)); !rejects(err, PartRegistration) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	leases := map[string]string{
		"empty": "", "version 1": "0001 0001 6D 0000000000000000 0000 0000000000000000 0000000000000000",
		"no member":      "0000 0000 0000000000000000 0000 0000000000000000 0000000000000000",
		"negative id":    "0000 0001 6D FFFFFFFFFFFFFFFF 0000 0000000000000000 0000000000000000",
		"negative epoch": "0000 0001 6D 0000000000000000 FFFF 0000000000000000 0000000000000000",
	}
	for name, h := range leases {
		if l, err := DecodeLease(unhex(t, h)); !rejects(err, PartLease) {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
	for _, g := range golden {
		b := unhex(t, g.hex)
		for cut := range b {
			if err := decodeAs(g.key != nil, g.reg != nil, b[:cut]); err == nil {
				t.Errorf("%s cut to %d bytes is accepted", g.name, cut)
			}
		}
		if err := decodeAs(g.key != nil, g.reg != nil, append(b, 0)); err == nil {
			t.Errorf("%s with a byte more is accepted", g.name)
		}
	}
}

func decodeAs(key, registration bool, b []byte) (err error) {
	switch {
	case key:
		_, err = DecodeKey(b)
	case registration:
		_, err = DecodeRegistration(b)
	default:
		_, err = DecodeLease(b)
	}
	return err
}

func rejects(err error, part string) bool {
	var de *DecodeError
	return errors.As(err, &de) && de.Part == part && de.What != ""
}

func TestA1NamesHave1To249BytesOfUTF8(t *testing.T) {
	for _, check := range []func(string) error{CheckRole, CheckMember} {
		for _, good := range []string{"a", "billing/nightly", "リーダー", "a b", strings.Repeat("r", MaxName)} {
			if err := check(good); err != nil {
				t.Errorf("%q: %v", good, err)
			}
		}
		for _, bad := range []string{"", strings.Repeat("r", MaxName+1), strings.Repeat("é", 125), "\xff"} {
			var ne *NameError
			if err := check(bad); !errors.As(err, &ne) {
				t.Errorf("%d bytes: %v", len(bad), err)
			}
		}
	}
}

func TestTokensAreReadAsTheyAreWritten(t *testing.T) {
	for _, s := range []string{"4242:7", "0:0", "9223372036854775807:32767"} {
		if tok, err := ParseToken(s); err != nil || tok.String() != s {
			t.Errorf("%s: %v, %v", s, tok, err)
		}
	}
	for _, s := range []string{"", "4242", "4242:7:1", "4242:", ":7", "x:7", "-1:7", "4242:40000", "4242:-1", "+1:7", "9223372036854775808:1"} {
		if tok, err := ParseToken(s); err == nil {
			t.Errorf("%q is read as %v", s, tok)
		}
	}
	if NoToken.Valid() || !(Token{}).Valid() {
		t.Error("0:0 is a token, -1:-1 is none")
	}
}

func FuzzRecords(f *testing.F) {
	for _, g := range golden {
		f.Add(unhex(f, g.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := DecodeKey(b); err == nil && !bytes.Equal(k.Append(nil), b) {
			t.Errorf("key %x decodes to %+v, which is %x", b, k, k.Append(nil))
		}
		if r, err := DecodeRegistration(b); err == nil && !bytes.Equal(r.Append(nil), b) {
			t.Errorf("registration %x decodes to %+v", b, r)
		}
		if l, err := DecodeLease(b); err == nil && !bytes.Equal(l.Append(nil), b) {
			t.Errorf("lease %x decodes to %+v", b, l)
		}
		_, _ = ParseToken(string(b))
	})
}
