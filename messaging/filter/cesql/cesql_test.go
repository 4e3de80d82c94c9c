package cesql_test

import (
	"math"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging/filter/cesql"
)

// full returns an event to select.
func full() event.Event {
	e := sdk.New("1.0")
	e.SetID("17")
	e.SetSource("https://shop.example.com/orders")
	e.SetType("order.placed")
	e.SetSubject("größe/50%_a")
	e.SetTime(time.Date(2026, 1, 2, 4, 4, 5, 0, time.FixedZone("", 3600)))
	e.SetExtension("tenant", "acme")
	e.SetExtension("hop", "5")
	e.SetExtension("ttl", 10)
	e.SetExtension("urgent", true)
	e.SetExtension("yes", "TRUE")
	e.SetExtension("empty", "")
	e.SetExtension("bytes", []byte{1})
	return e
}

// TestMatch states what expressions mean. An error of the specification is no
// match, and for that the NOT of it is none either.
func TestMatch(t *testing.T) {
	const match, none, fails = "match", "none", "fails"
	for _, test := range []struct{ name, expression, want string }{
		{"equal", `type = 'order.placed'`, match},
		{"case-sensitive", `type = 'Order.placed'`, none},
		{"double quotes", `type = "order.placed"`, match},
		{"not equal", `type != 'order.placed'`, none},
		{"other not equal", `type <> 'order.paid'`, match},
		{"keywords in any case", `type Like 'order.%' and not exists NOBODY oR false`, fails + " to compile"},
		{"keywords in any case", `(type Like 'order.%' and not exists NOBODY) oR fAlse`, match},
		{"names in any case", `TYPE = 'order.placed'`, match},

		{"and", `id = '17' AND tenant = 'acme'`, match},
		{"and not", `id = '17' AND tenant = 'x'`, none},
		{"or", `id = '18' OR tenant = 'acme'`, match},
		{"xor", `id = '17' XOR tenant = 'acme'`, none},
		{"three ands", `TRUE AND TRUE AND FALSE`, none},
		{"three xors", `TRUE XOR TRUE XOR TRUE`, match},
		{"parentheses on the left", `(FALSE AND TRUE) OR TRUE`, match},
		{"parentheses on the right", `FALSE AND (TRUE OR TRUE)`, none},
		{"and leaves out errors", `FALSE AND (1 != 1 / 0)`, none},
		{"and has errors", `TRUE AND (1 != 1 / 0)`, fails},
		{"or leaves out errors", `TRUE OR (1 != 1 / 0)`, match},
		{"or has errors", `FALSE OR (1 != 1 / 0)`, fails},
		{"xor has errors", `TRUE XOR nobody`, fails},
		{"left errors stay", `nobody OR TRUE`, fails},
		{"not", `NOT TRUE`, none},
		{"not twice", `NOT NOT TRUE`, match},
		{"not in front of and", `NOT FALSE AND TRUE`, match},
		{"not of a comparison", `NOT (type = 'x')`, match},
		{"not of an attribute", `(NOT urgent) = FALSE`, match},
		{"not of a string", `NOT 'FALSE'`, match},
		{"not of an integer", `NOT 10`, none},
		{"not of another string", `NOT type`, fails},

		{"missing attribute", `nobody = 'x'`, fails},
		{"missing attribute differs", `nobody != 'x'`, fails},
		{"missing optional attribute", `dataschema = ''`, fails},
		{"empty extension", `empty = ''`, match},
		{"exists", `EXISTS tenant AND EXISTS id AND EXISTS specversion`, match},
		{"exists empty", `EXISTS empty`, match},
		{"exists not", `EXISTS nobody`, none},
		{"guarded", `EXISTS nobody AND nobody = 'x'`, none},
		{"time in UTC", `time = '2026-01-02T03:04:05Z'`, match},
		{"source", `source = 'https://shop.example.com/orders'`, match},
		{"bytes", `bytes = 'AQ=='`, match},

		{"right side decides: integer", `hop = 5`, match},
		{"right side decides: string", `5 = hop`, match},
		{"right side decides: boolean", `urgent = 'true'`, match},
		{"case of a cast boolean", `TRUE = 'TRUE'`, none},
		{"case of a cast string", `yes = TRUE`, match},
		{"cast fails", `tenant = 5`, fails},
		{"cast fails in a difference", `tenant != 5`, fails},
		{"out of range of a cast", `'2147483648' = 1`, fails},
		{"sign of a cast", `'+5' = 5 AND '-5' = -5`, match},
		{"spaces in a cast", `' 5' = 5`, fails},
		{"attributes of both kinds", `hop < ttl`, match},
		{"boolean as integer", `urgent >= 1`, match},
		{"less", `-2147483648 < 2147483647`, match},
		{"less or equal", `2 <= 1`, none},
		{"greater", `2 > 2`, none},
		{"no order of strings", `type > 'a'`, fails},

		{"precedence", `4 * 2 + 4 / 2 = 10`, match},
		{"from left to right", `7 - 2 - 1 = 4 AND 100 / 10 / 5 = 2`, match},
		{"truncated division", `-5 / 3 = -1 AND -5 % 3 = -2 AND 5 % -3 = 2`, match},
		{"negation", `- hop = -5 AND --10 = 10`, match},
		{"division by zero", `5 / 0 = 0`, fails},
		{"remainder of zero", `5 % 0 = 0`, fails},
		{"sum out of range", `2147483647 + 1 < 0`, fails},
		{"difference out of range", `-2147483648 - 1 > 0`, fails},
		{"product out of range", `65536 * 65536 = 0`, fails},
		{"negation out of range", `- -2147483648 < 0`, fails},
		{"division out of range", `-2147483648 / -1 < 0`, fails},

		{"in", `tenant IN ('x', 'acme')`, match},
		{"in not", `tenant IN ('x', 'ACME')`, none},
		{"not in", `tenant NOT IN ('x', 'y')`, match},
		{"in attributes", `'5' IN (tenant, hop)`, match},
		{"in: left side decides", `ttl IN ('9', '10')`, match},
		{"in: left string decides", `'true' IN (TRUE)`, match},
		{"in: order of errors", `1 IN ('x', 1)`, fails},
		{"in: order of errors reversed", `1 IN (1, 'x')`, fails},
		{"in: missing", `nobody IN ('x')`, fails},

		{"like", `type LIKE 'order.%'`, match},
		{"like all", `tenant LIKE '%'`, match},
		{"like nothing", `empty LIKE '%' AND empty LIKE ''`, match},
		{"like is of the whole", `type LIKE 'order'`, none},
		{"not like", `type NOT LIKE 'order.%'`, none},
		{"like an integer", `ttl LIKE '1_'`, match},
		{"like: missing", `nobody LIKE '%'`, fails},
		{"not like: missing", `nobody NOT LIKE '%'`, fails},
		{"backslash in front of others", `'a\b' LIKE 'a\b'`, match},
		{"escapes", `'a%b_c' LIKE 'a\%b\_c' AND 'azb_c' NOT LIKE 'a\%b\_c' AND 'a%bzc' NOT LIKE 'a\%b\_c'`, match},
		{"several percents", `'abcabd' LIKE '%ab%d' AND 'aab' LIKE '%ab' AND 'ab.cde' NOT LIKE '.%.%.'`, match},

		{"escaped quotes", `'it\'s' = "it's" AND "say \"x\"" = 'say "x"'`, match},
		{"backslashes", `LENGTH('a\\b') = 4 AND LENGTH('\\') = 2`, match},

		{"length", `LENGTH(tenant) = 4 AND length(TRUE) = 4`, match},
		{"concat", `CONCAT() = '' AND CONCAT('a', 1, TRUE) = 'a1true'`, match},
		{"concat with a delimiter", `CONCAT_WS(',', 'a', 'b') = 'a,b' AND CONCAT_WS(',') = ''`, match},
		{"lower and upper", `LOWER('ÄB') = 'äb' AND UPPER('äb') = 'ÄB'`, match},
		{"trim", "TRIM(' \t\u00a0a b\u2003') = 'a b'", match},
		{"trim spares control characters", "TRIM('\x01a\x01') = '\x01a\x01'", match},
		{"left and right", `LEFT('abc', 2) = 'ab' AND LEFT('abc', 9) = 'abc' AND RIGHT('abc', 2) = 'bc' AND RIGHT('abc', 9) = 'abc' AND RIGHT('abc', 0) = ''`, match},
		{"left of less than nothing", `LEFT('abc', -1) = 'abc'`, fails},
		{"right of less than nothing", `RIGHT('abc', -1) = 'abc'`, fails},
		{"substring", `SUBSTRING('abcdef', 2) = 'bcdef' AND SUBSTRING('Sakila', -5, 3) = 'aki' AND SUBSTRING('abc', 2, 9) = 'bc' AND SUBSTRING('abc', 0) = '' AND SUBSTRING('abc', 1, 0) = ''`, match},
		{"substring behind the end", `SUBSTRING('abc', 4) = ''`, fails},
		{"substring before the start", `SUBSTRING('abc', -4) = ''`, fails},
		{"abs", `ABS(-5) = 5 AND ABS('5') = 5`, match},
		{"abs out of range", `ABS(-2147483648) = 2147483647`, fails},
		{"casts", `INT('7') = 7 AND BOOL('False') = FALSE AND STRING(TRUE) = 'true' AND BOOL(-50)`, match},
		{"casts that fail", `INT('x') = 0`, fails},
		{"questions", `IS_INT(hop) AND IS_BOOL(yes) AND (NOT IS_INT(tenant)) AND NOT IS_BOOL(tenant)`, match},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := cesql.Compile(test.expression)
			if strings.HasSuffix(test.want, "to compile") {
				if err == nil {
					t.Errorf("%s compiles", test.expression)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", test.expression, err)
			}
			opposite := cesql.MustCompile("NOT (" + test.expression + ")")
			e := full()
			if got, want := f(e), test.want == match; got != want {
				t.Errorf("%s matches: %v, want %v", test.expression, got, want)
			}
			if got, want := opposite(e), test.want == none; got != want {
				t.Errorf("NOT (%s) matches: %v, want %v", test.expression, got, want)
			}
		})
	}
}

// TestUnlikeSDK has what the CloudEvents SDK 2.16.2 answers otherwise, panics
// on, or prints to the standard error.
func TestUnlikeSDK(t *testing.T) {
	for _, test := range []struct{ name, expression string }{
		{"a percent in the text is no reason to leave the wildcard", `'a%bc' LIKE 'a%' AND '%abc' LIKE '%' AND '%%x' LIKE '%x'`},
		{"an underscore is a character", `'größe' LIKE 'gr__e' AND 'ß' LIKE '_' AND 'ß' NOT LIKE '__' AND '日本' LIKE '_本'`},
		{"an escaped wildcard is no backslash", `'\foo' NOT LIKE '\%'`},
		{"length counts characters", `LENGTH('größe') = 5`},
		{"left counts characters", `LEFT('größe', 3) = 'grö'`},
		{"right counts characters", `RIGHT('größe', 3) = 'öße'`},
		{"substring counts characters", `SUBSTRING('größe', 4) = 'ße' AND SUBSTRING('größe', -2, 1) = 'ß'`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !cesql.MustCompile(test.expression)(full()) {
				t.Errorf("%s does not match", test.expression)
			}
		})
	}
	for _, test := range []struct{ name, expression string }{
		{"a negative length is an error, and no panic", `SUBSTRING('abc', 2, -1) = ''`},
		{"a negative length is one at 0, too", `SUBSTRING('abc', 0, -1) = ''`},
		{"numbers do not wrap around", `2147483647 + 1 = -2147483648`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if cesql.MustCompile(test.expression)(full()) || cesql.MustCompile("NOT ("+test.expression+")")(full()) {
				t.Errorf("%s is no error", test.expression)
			}
		})
	}
	e := full()
	e.Context.(*sdk.EventContextV1).Extensions["big"] = uint64(math.MaxUint32 + 5)
	if cesql.MustCompile(`big = 4`)(e) || cesql.MustCompile(`EXISTS big`)(e) {
		t.Error("an integer out of range is taken for another")
	}
	for _, e := range []event.Event{{}, {Context: (*sdk.EventContextV1)(nil)}, sdk.New("0.3")} {
		if cesql.MustCompile(`time = 'x' OR EXISTS tenant`)(e) {
			t.Error("an event without attributes matches")
		}
	}
}

// TestLike compares with regular expressions, for all short texts and patterns.
func TestLike(t *testing.T) {
	regular := map[string]string{"a": "a", "ß": "ß", "%": ".*", "_": ".", `\%`: "%", `\_`: "_"}
	// words returns up to n of the tokens, as they are and as regular expressions.
	words := func(n int, tokens ...string) (list [][2]string) {
		list = [][2]string{{}}
		for begin := 0; n > 0; n-- {
			end := len(list)
			for _, word := range list[begin:end] {
				for _, token := range tokens {
					list = append(list, [2]string{word[0] + token, word[1] + regular[token]})
				}
			}
			begin = end
		}
		return list
	}
	texts := words(4, "a", "ß", "%", "_")
	e := full()
	for _, pattern := range words(3, "a", "ß", "%", "_", `\%`, `\_`) {
		f := cesql.MustCompile(`text LIKE '` + pattern[0] + `'`)
		want := regexp.MustCompile("^" + pattern[1] + "$")
		for _, text := range texts {
			e.SetExtension("text", text[0])
			if got := f(e); got != want.MatchString(text[0]) {
				t.Errorf("%q LIKE %q is %v, want %v", text[0], pattern[0], got, !got)
			}
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for expression, want := range map[string]string{
		``:                                  "line 1, column 1: ",
		`type = `:                           "line 1, column 8: ",
		"type =\n 'x' 'y'":                  "line 2, column 6: ",
		`type = 'x`:                         "line 1, column 8: ",
		`type = 'x' ;`:                      "column 12: token recognition error at: ';'",
		`type = ‘x’`:                        "column 8: token recognition error",
		`a.b = 'x'`:                         "column 2: token recognition error",
		`ſubject = 'x'`:                     "column 1: token recognition error",
		`ABC(`:                              "column 5: ",
		`type LIKE subject`:                 "column 11: ",
		`type IN ()`:                        "column 10: ",
		`EXISTS 'type'`:                     "column 8: ",
		"type = '\xff'":                     "not valid UTF-8",
		strings.Repeat(" ", 1<<12) + "TRUE": "at most 4096",
		`FALSE AND TRUE OR TRUE`:            "parentheses are required",
		`TRUE OR TRUE AND FALSE`:            "parentheses are required",
		`TRUE XOR TRUE XOR FALSE OR TRUE`:   "parentheses are required",
		`TRUE AND (TRUE AND TRUE OR TRUE)`:  "column 11: AND, OR and XOR",
		`NOT type = 'x'`:                    "NOT comes before",
		`NOT type LIKE 'x%'`:                "NOT comes before",
		`NOT type IN ('x')`:                 "NOT comes before",
		`NOT hop + 1 = 2`:                   "NOT comes before",
		`'it''s' = type`:                    "column 1: a quote in a string",
		`type LIKE "a""b"`:                  "column 11: a quote in a string",
		`2147483648 = hop`:                  "column 1: 2147483648 is out of range",
		`4 -1 = 3`:                          "column 3: ",
		`NOPE(type)`:                        "column 1: there is no function NOPE with 1 arguments",
		`TRUE AND LENGTH(type, 1) = 1`:      "column 10: there is no function LENGTH with 2 arguments",
		`CONCAT_WS() = ''`:                  "no function CONCAT_WS with 0 arguments",
		`data = 'x'`:                        `attribute "data"`,
		`EXISTS data`:                       `attribute "data"`,
		`type`:                              "must be a boolean",
		`urgent`:                            "must be a boolean",
		`5`:                                 "the result is an integer",
		`'true'`:                            "the result is a string",
		`LENGTH(type) + 1`:                  "the result is an integer",
	} {
		f, err := cesql.Compile(expression)
		if err == nil || f != nil || !strings.HasPrefix(err.Error(), "cesql: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: error is %v, want %s", expression, err, want)
		}
	}
}

func TestMustCompile(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("does not panic")
		}
	}()
	cesql.MustCompile(`type =`)
}

// TestCompileDeep nests as deep as the length of an expression allows.
func TestCompileDeep(t *testing.T) {
	const n = cesql.MaxLength
	for name, test := range map[string]struct {
		expression string
		compiles   bool
	}{
		"parentheses":        {strings.Repeat("(", n/2-2) + "TRUE" + strings.Repeat(")", n/2-2), true},
		"nots":               {strings.Repeat("NOT ", n/4-1) + "TRUE", true},
		"minuses":            {strings.Repeat("-", n-4) + "1= 1", true},
		"ands":               {strings.Repeat("1 AND ", n/6-1) + "TRUE", true},
		"unclosed":           {strings.Repeat("(", n), false},
		"unclosed functions": {strings.Repeat("A(", n/2), false},
		"unclosed sets":      {strings.Repeat("a NOT IN (", n/10), false},
		"no operand":         {strings.Repeat("-", n), false},
		"no tokens":          {strings.Repeat("&", n), false},
		"unclosed strings":   {strings.Repeat("'\\", n/2), false},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := cesql.Compile(test.expression)
			if (err == nil) != test.compiles {
				t.Fatalf("error is %v, want it to compile: %v", err, test.compiles)
			}
			if err == nil && !f(full()) && name != "nots" && name != "minuses" {
				t.Error("does not match")
			}
		})
	}
}

// TestConcurrent compiles and matches at once, for the race detector: parsers
// of one grammar share caches.
func TestConcurrent(t *testing.T) {
	f := cesql.MustCompile(`type LIKE '%.placed' AND CONCAT(tenant, hop) IN ('acme5', 'x') AND ttl > hop`)
	expressions := []string{
		`NOT (LENGTH(tenant) = 5) AND hop < 6`, `tenant NOT IN ('a', "b", CONCAT('c', hop))`, `NOT EXISTS nobody XOR -1 % 2 <> -1`,
		`(((hop = 5))) AND ABS(INT('-3')) = 3`, `type NOT LIKE 'x%' OR nobody`, `1 + 2 * 3 - 4 / 2 = 5`,
	}
	e := full()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				if !f(e) {
					t.Error("does not match")
				}
				expression := expressions[(i+j)%len(expressions)]
				if !cesql.MustCompile(expression)(e) {
					t.Errorf("%s does not match", expression)
				}
			}
		})
	}
	wg.Wait()
}

func TestDoesNotAllocate(t *testing.T) {
	f := cesql.MustCompile(`type LIKE 'order.%' AND (tenant IN ('x', 'acme') OR NOT EXISTS subject) AND hop = 5`)
	e := full()
	if n := testing.AllocsPerRun(100, func() { f(e) }); n != 0 || !f(e) {
		t.Errorf("%v allocations, matches: %v", n, f(e))
	}
}

// FuzzCompile holds Compile to a filter or an error, the filter to not
// panicking, and the filter of the opposite to not matching, too.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		`type LIKE 'order.%' AND (tenant = 'acme' OR INT(hop) > 5)`, `SUBSTRING(type, -2, hop) IN ('a', "b", ttl)`,
		`NOT EXISTS time XOR -1 % 2 <> 1`, `'it\'s' = "\\"`, `(`, `a..b`, `'`, `LEFT('größe', -1) = RIGHT(subject, 3)`, "", "\xff", `x''`, `1 = 1 OR TRUE AND FALSE`,
	} {
		f.Add(seed)
	}
	events := []event.Event{full(), {}, sdk.New("0.3")}
	f.Fuzz(func(t *testing.T, expression string) {
		match, err := cesql.Compile(expression)
		if (match == nil) == (err == nil) {
			t.Fatalf("neither or both of filter and error: %v", err)
		}
		if match == nil {
			return
		}
		opposite, err := cesql.Compile("NOT (" + expression + ")")
		if err != nil && len(expression) <= cesql.MaxLength-6 {
			t.Fatalf("NOT (%s): %v", expression, err)
		}
		for _, e := range events {
			if match(e) && err == nil && opposite(e) {
				t.Errorf("%s and its opposite match", expression)
			}
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	e := full()
	for name, expression := range map[string]string{
		"type":      `type = 'order.placed'`,
		"extension": `tenant = 'acme'`,
		"like":      `type = 'order.placed' AND subject LIKE 'größe/%'`,
		"function":  `LOWER(tenant) = 'acme'`,
	} {
		b.Run(name, func(b *testing.B) {
			f := cesql.MustCompile(expression)
			b.ReportAllocs()
			for b.Loop() {
				f(e)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		cesql.MustCompile(`type = 'order.placed' AND subject LIKE 'order/%'`)
	}
}
