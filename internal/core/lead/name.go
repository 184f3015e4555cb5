package lead

import (
	"fmt"
	"unicode/utf8"
)

// MaxName is the longest role and the longest member id, in bytes.
const MaxName = 249

// NameError is a role or a member id that cannot be used.
type NameError struct {
	Part string // "role" or "member"
	What string // what is wrong with it
}

func (e *NameError) Error() string { return "ottla: " + e.Part + " " + e.What }

// MayHaveHappened is false: the name is checked before anything is sent.
func (*NameError) MayHaveHappened() bool { return false }

// CheckRole reports what is wrong with a role: it has 1 to 249 bytes of UTF-8,
// and no other rule.
func CheckRole(role string) error { return checkName("role", role) }

// CheckMember reports what is wrong with a member id; the rule is that of roles.
func CheckMember(member string) error { return checkName("member", member) }

func checkName(part, s string) error {
	switch {
	case s == "":
		return &NameError{part, "is empty"}
	case len(s) > MaxName:
		return &NameError{part, fmt.Sprintf("has %d bytes, the limit is %d", len(s), MaxName)}
	case !utf8.ValidString(s):
		return &NameError{part, "is not UTF-8"}
	}
	return nil
}

// PartitionOf is the partition of a role, by the murmur2 hash of its name, in a
// topic of count partitions. The sign bit is cleared, as every member does it.
func PartitionOf(hash, count int32) (int32, error) {
	if count < 1 {
		return -1, fmt.Errorf("ottla: a topic of %d partitions has no place for a role", count)
	}
	return hash & 0x7fffffff % count, nil
}
