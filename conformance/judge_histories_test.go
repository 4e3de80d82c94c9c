package conformance

// judged are histories for each judge: those that it has nothing to say about,
// and those in which it finds a breach.
var judged = map[string]struct{ good, bad []string }{
	"lost": {
		good: []string{
			"sub s @0; pub a @1; get s a @2; ack s a @3; end @500",
			"sub s @0; pub a @1 unknown; pub b @2 fail; end @500",
			"sub s @0 types=x; pub a @1; end @500",
			"sub s @9 new; pub a @1-9; end @500",
			"sub s @0; pub a @1; get s a @2; reject s a @3; end @500",
			"sub s @0; pub a @1; pub b @2 id=a; get s a @3; ack s a @4; end @500",
			"sub s @0; pub a @1; get s a @2; ack s a @3 unknown; end @500",
		},
		bad: []string{
			"sub s @0; pub a @1; end @500",
			"sub s @0; sub t @0; pub a @1; get s a @2; ack s a @3; end @500",
			"sub s @0; pub a @1; get s a @2; retry s a @3; end @500",
			"sub s @0; pub a @1; get s a @2; ack s a @200 err=lost; end @500",
		},
	},
	"unexpected": {
		good: []string{
			"sub s @0; pub a @1; get s a @2",
			"sub s @0; pub a @1-5; get s a @3",
		},
		bad: []string{
			"sub s @0; pub a @1; get s b @2",
			"sub s @0; pub a @3; get s a @2",
		},
	},
	"aborted": {
		good: []string{
			"sub s @0; pub a @1 fail; pub b @2; get s b @3",
			"sub s @0; pub a @1 fail; pub a @2; get s a @3",
			"sub s @0; pub a @1 unknown; get s a @3",
		},
		bad: []string{
			"sub s @0; pub a @1 fail; get s a @3",
			"sub s @0; pub a @1 err=context; pub a @2 fail; get s a @3; ack s a @4",
		},
	},
	"after-ack": {
		good: []string{
			"sub s @0; pub a @1; get s a @2; retry s a @3; get s a#2 @4; ack s a @5",
			"sub s @0; pub a @1; get s a @2; ack s a @3-6; get s a @5-7 who=o",
			"sub s @0; pub a @1; get s a @2; ack s a @3 unknown; get s a @5",
			"none; sub s @0; pub a @1; get s a @2; ack s a @3; restart @4-5; get s a @6",
		},
		bad: []string{
			"sub s @0; pub a @1; get s a @2; ack s a @3; get s a @4",
			"sub s @0; pub a @1; get s a @2; ack s a @3; restart @4-5; get s a @6",
			"none; sub s @0; pub a @1; get s a @2; ack s a @3; restart @40-50; get s a @60",
			"none; sub s @0; pub a @1; get s a @2; ack s a @3; get s a @4; restart @5-6",
		},
	},
	"overlap": {
		good: []string{
			"sub s @0; pub a @1; get s a @2; get s a#2 @102",
			"sub s @0; pub a @1; get s a @2; retry s a @3-5; get s a#2 @4",
			"sub s @0; pub a @1; get s a @2; close s @3; get s a @4 who=o",
			"sub s @0; pub a @1; get s a @2; restart @3-5; get s a @6 who=o",
		},
		bad: []string{
			"sub s @0; pub a @1; get s a @2; get s a#2 @101",
			"sub s @0; pub a @1; get s a @2; get s a @3 who=o; ack s a @4 n=1",
			"sub s @0; pub a @1; get s a @2; extend s a @50 to=150; get s a#2 @120",
			"sub s @0; pub a @1; get s a @2; ack s a @3 err=other; get s a#2 @50",
		},
	},
	"attempt": {
		good: []string{
			"sub s @0; pub a @1; get s a @2; retry s a @3; get s a#2 @4; get s a#3 @104",
			"sub s @0; pub a @1; get s a @2; release s a @3; get s a @4; close s @5; get s a @6 who=o",
			"sub s @0; pub a @1; get s a @2; retry s a @3 unknown; get s a @120",
			"none; sub s @0; pub a @1; restart @2-3; get s a#2 @4",
			"sub s @0; pub a @1; get s a @2; restart @3-4; get s a#2 @5",
		},
		bad: []string{
			"sub s @0; pub a @1; get s a#2 @2",
			"sub s @0; pub a @1; get s a @2; retry s a @3; get s a @4",
			"sub s @0; pub a @1; get s a @2; release s a @3; get s a#2 @4",
			"sub s @0; pub a @1; get s a @2; close s @3; get s a#2 @4 who=o",
			"sub s @0; pub a @1; get s a @2; get s a#3 @104",
			"sub s @0; pub a @1; restart @2-3; get s a#2 @4",
		},
	},
	"fidelity": {
		good: []string{
			"sub s @0; pub a @1 note=x; get s a @2 note=x",
			"sub s @0; pub a @1; get s a @2; write a @3 data=!; get s a#2 @4 data=! who=o",
		},
		bad: []string{
			"sub s @0; pub a @1; get s a @2 data=b",
			"sub s @0; pub a @1 note=x; get s a @2",
			"sub s @0; pub a @1; get s a @2 note=",
		},
	},
	"isolation": {
		good: []string{
			"sub s @0; pub a @1; get s a @2; write a @3 data=!; retry s a @4; get s a#2 @5",
			"sub s @0; pub a @1; get s a @2 data=b; write a @3 data=!",
			"sub s @0; pub a @1; get s a @2 data=!; write a @3 data=!",
		},
		bad: []string{
			"sub s @0; pub a @1; get s a @2; write a @3 data=!; retry s a @4; get s a#2 @5 data=!",
			"sub s @0; pub a @1; write a @2 note=? who=p; get s a @3 note=?",
		},
	},
	"window": {
		good: []string{
			"sub s @0 max=2; get s a @2; get s b @3; ack s a @4-6; get s c @5",
			"sub s @0 max=1; get s a @2; retry s a @3 after=50; get s b @53",
			"sub s @0 max=1; get s a @2; get s b @102",
			"sub s @0 max=1; get s a @2; close s @3-5; get s b @4 who=o",
		},
		bad: []string{
			"sub s @0 max=2; get s a @2; get s b @3 who=o; get s c @5; ack s a @6",
			"sub s @0 max=1; get s a @2; retry s a @3 after=50; get s b @52",
		},
	},
	"filter": {
		good: []string{
			"sub s @0 types=a.*; pub x @1 type=a.b; get s x @2",
			"sub s @0 types=b,a.>; pub x @1 type=a.b.c; get s x @2",
			"sub s @0; pub x @1 type=a; get s x @2",
		},
		bad: []string{
			"sub s @0 types=a.*; pub x @1 type=a.b.c; get s x @2",
			"sub s @0 types=a; pub x @1 type=A; get s x @2",
			"sub s @0 types=a.>; pub x @1 type=a; get s x @2",
		},
	},
	"dedup": {
		good: []string{
			"sub s @0; pub a @1; pub b @9 id=a; get s a @10",
			"sub s @0; pub a @1; pub b @2001 id=a; get s a @2; get s b @2002",
			"sub s @0; pub a @1; pub b @1500 id=a; get s a @2",
			"sub s @0; pub a @1 unknown; pub b @9 id=a; get s b @10",
			"sub s @0; pub a @1 id=x/1; pub b @1 id=y/1; get s a @2; get s b @3",
		},
		bad: []string{
			"sub s @0; pub a @1; pub b @9 id=a; get s a @10; get s b @11",
			"sub s @0; pub a @1; pub b @9 id=a; get s b @11",
			"sub s @0; pub a @1 batch=1; pub b @1 id=a batch=1; get s a @10; get s b @11",
			"sub s @0; pub a @1; pub b @2001 id=a; get s a @2",
			"sub s @0; pub a @1 id=x/1; pub b @2 id=y/1; get s a @3",
		},
	},
	"order": {
		good: []string{
			"sub s @0; pub a @1; pub b @2; get s a @3; get s b @4",
			"sub s @0; pub a @1; pub b @2 who=q; get s b @3; get s a @4",
			"sub s @0; sub s @0 who=o; pub a @1; pub b @2; get s b @3; get s a @4",
			"sub s @0; pub a @1; pub b @2; get s b @3-6; get s a @4-7 who=m",
			"sub s @0; pub a @1; pub b @2 batch=1; pub c @2 batch=1 unknown; get s b @3; get s a @4",
			"sub s @0 max=1; pub a @1; pub b @2; get s a @3; retry s a @4; get s a#2 @5; ack s a @6-8; get s b @7",
			"sub s @0 max=1 cap=1; get s a @3; retry s a @4; get s b @5",
			"none; sub s @0 max=1; get s a @3; restart @4-5; get s b @6 who=o",
		},
		bad: []string{
			"sub s @0; pub a @1; pub b @2; get s b @3; get s a @4",
			"sub s @0; pub a @1 batch=1; pub b @1 batch=1; get s b @3; get s a @4",
			"sub s @0 max=1; pub a @1; get s a @3; retry s a @4; get s b @5",
			"sub s @0 max=1; pub a @1; get s a @3; get s b @103",
		},
	},
	"start": {
		good: []string{
			"pub a @1; sub s @2-4 new; pub b @3; pub c @5; get s c @6",
			"pub a @1-3; sub s @2-4 new; get s a @5",
			"pub a @1; sub s @2; get s a @3; ack s a @4; sub s @5 who=o; pub b @6; get s b @7 who=o",
			"none; pub a @1; sub s @2; get s a @3; ack s a @4; restart @5-6; sub s @7 who=o; get s a @8 who=o",
		},
		bad: []string{
			"pub a @1; sub s @2 new; get s a @3",
			"pub a @1; sub s @2; pub b @3; get s b @4",
			"sub s @2 new; pub a @3; pub b @4; get s b @5",
			"pub a @1; sub s @2; get s a @3; ack s a @4; sub s @5 who=o; get s a @6 who=o",
		},
	},
	"fairness": {
		good: []string{
			"sub s @0 max=1; sub s @0 who=o; get s @5-90 err=context" + served(24),
			"sub s @0 max=1; sub s @0 who=o; get s @5-90 err=context; pub x @1; get s x @20-21; ack s x @21" + served(30),
		},
		bad: []string{
			"sub s @0 max=1; sub s @0 who=o; get s @5-90 err=context" + served(25),
			"sub s @0 max=2; sub s @0 who=o; pub x @1; get s x @5-90" + served(30),
		},
	},
	"fencing": {
		good: []string{
			"sub s @0; get s a @2; ack s a @102 err=lost; get s a#2 @103; ack s a @104",
			"sub s @0; get s a @2; ack s a @101-110",
			"sub s @0; get s a @2; extend s a @50 to=150; ack s a @120",
			"sub s @0; get s a @2; close s @3-5; ack s a @4",
		},
		bad: []string{
			"sub s @0; get s a @2; ack s a @102",
			"sub s @0; get s a @2; close s @3-5; ack s a @6",
			"sub s @0; get s a @2; get s a#2 @103; ack s a @104 n=1 err=lost; ack s a @105 n=2 err=lost",
		},
	},
	"liveness": {
		good: []string{
			"sub s @0; pub a @1; calm @9; get s a @300; ack s a @309; end @500",
			"sub s @0; get s a @0-60; pub a @1; ack s a @61; end @500",
			"sub s @0; get s b @0; pub a @1; get s a @62; ack s a @63; end @500",
			"sub s @0; get s @0-300 err=context who=m; sub s @0 who=o; pub a @1; get s a @299 who=o; end @500",
			"sub s @0; pub a @1; get s a @2; get s a#2 @2-162; ack s a @163; end @500",
		},
		bad: []string{
			"sub s @0; pub a @1; calm @9; get s a @300; ack s a @310; end @500",
			"sub s @0; pub a @1; calm @9; end @500",
			"sub s @0; get s a @0-62; pub a @1; ack s a @63; end @500",
			"sub s @0; pub a @1; get s a @2; get s a#2 @2-163; ack s a @164; end @500",
			"sub s @0; pub a @1; get s a @2; release s a @3; get s @3-500 err=closed; end @500",
		},
	},
	"backoff": {
		good: []string{
			"sub s @0; get s a @2; retry s a @3-5 after=50; get s a#2 @53",
			"sub s @0; get s a @2; retry s a @3 after=50; get s a#2 @4-113",
			"none; sub s @0; get s a @2; retry s a @3 after=2000; restart @4-5; get s a#2 @1003",
		},
		bad: []string{
			"sub s @0; get s a @2; retry s a @3-5 after=50; get s a#2 @52",
			"sub s @0; get s a @2; retry s a @3 after=50; get s a#2 @4-114; end @500",
			"none; sub s @0; get s a @2; retry s a @3 after=2000; restart @4-5; get s a#2 @1002",
		},
	},
	"dead letter": {
		good: []string{
			"sub s @0 cap=2; pub a @1; get s a @2; retry s a @3; get s a#2 @4; retry s a @5; sub d @6 of=s; get d a @7 letter=s/2/; end @500",
			"sub s @0; pub a @1; get s a @2; reject s a @3 reason=bad; sub d @6 of=s; get d a @7 letter=s/1/bad; end @500",
			"sub s @0 cap=1; pub a @1; get s a @2; sub d @102 of=s; get d a @107 letter=s/1/late; end @500",
			"sub s @0 cap=1; pub a @1; get s a @2; ack s a @3; sub d @6 of=s; end @500",
			"none; sub s @0 cap=2; pub a @1; get s a @2; restart @3-4; sub d @6 of=s; get d a @107 letter=s/2/; end @500",
		},
		bad: []string{
			"sub s @0 cap=2; pub a @1; get s a#3 @2",
			"sub s @0; pub a @1; get s a @2; reject s a @3; get s a @4",
			"sub s @0; pub a @1; get s a @2; reject s a @3; sub d @6 of=s; end @500",
			"sub s @0 cap=2; pub a @1; get s a @2; retry s a @3; sub d @6 of=s; get d a @7 letter=s/1/; end @500",
			"sub s @0; pub a @1; get s a @2; reject s a @3 reason=bad; sub d @6 of=s; get d a @7 letter=s/1/other; end @500",
			"sub s @0; pub a @1; get s a @2; reject s a @3; sub d @6 of=s; get d a @7 letter=t/1/; end @500",
			"sub s @0; pub a @1; get s a @2; reject s a @3; sub d @6 of=s; get d a @7 letter=s/1/ data=b; end @500",
			"sub s @0; pub a @1; get s a @2; reject s a @3; sub d @6 of=s; get d a @7; end @500",
			"sub s @0; pub a @1; sub d @6 of=s err=other",
		},
	},
	"shutdown": {
		good: []string{
			"sub s @0; get s a @2; get s @3-5 err=closed; close s @4-6; close s @7; get s a @8 who=o; end @500",
			"sub s @0; get s a @2; get s b @3-5; close s @4-6; get s b @7 who=o; get s a @8 who=o; end @500",
			"sub s @0; get s @3-60 err=closed; close broker @10",
		},
		bad: []string{
			"sub s @0; close s @4 fail",
			"sub s @0; close s @4; get s a @5",
			"sub s @0; get s @3-61 err=closed; close broker @10",
			"sub s @0; get s @3-; close s @10",
			"sub s @0; get s a @2; close s @3; end @500",
			"sub s @0; sub s @0 who=o; get s a @2; close s @3; get s a @3-64 who=o; end @500",
		},
	},
	"context": {
		good: []string{
			"sub s @0; get s @1-55 err=context limit=5; pub a @6 limit=6 err=context; close s @7-57",
			"sub s @0; get s @1-9 err=closed; get s a @1-2 limit=5; restart @10",
		},
		bad: []string{
			"sub s @0; get s @1-56 err=context limit=5",
			"sub s @0; get s @1- limit=5",
			"pub a @6 limit=5",
			"sub s @0; close s @7-58",
			"sub s @0; get s @1-2 err=other",
		},
	},
	"names": {
		good: []string{
			"sub a-b @0; sub a_b @0; pub x @1; get a-b x @2; ack a-b x @3; get a_b x @4; ack a_b x @5; end @500",
			"sub a-b @0; sub ac @0; pub x @1; get a-b x @2; ack a-b x @3; end @500",
			"sub a-b @0; sub a-b @0 max=1 err=conflict",
		},
		bad: []string{
			"sub a-b @0; sub a_b @0; pub x @1; get a-b x @2; ack a-b x @3; end @500",
			"sub a-b @0; sub a_b @0 max=1 err=conflict",
		},
	},
	"batch": {
		good: []string{
			"sub s @0; pub a @1 batch=1 err=invalid; pub b @1 batch=1 err=invalid; pub c @2; get s c @3",
			"sub s @0; pub a @1 batch=1 fail; pub b @1 batch=1; get s b @3",
			"sub s @0; pub a @1 batch=1 err=invalid; pub b @1 batch=1 err=invalid; pub b @2; get s b @3",
		},
		bad: []string{
			"sub s @0; pub a @1 batch=1 err=invalid; pub b @1 batch=1 err=invalid; get s b @3",
			"sub s @0; pub a @1 batch=1 err=invalid; pub b @1 batch=1; end @500",
		},
	},
}
