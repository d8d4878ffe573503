r"""Patterns for words that state an option, rule it out, ask about it, or take it back.

Patterns named ``..._BEFORE`` and all that end in ``\Z`` are searched in the words before a letter;
the others are matched directly after it. Both contexts have a fixed maximum length, so that the
time per response is linear in its length.
"""

from __future__ import annotations

import re

_FLAGS = re.IGNORECASE
LABEL = r"(?:option|choice|letter|answer|statement|alternative|selection|response)"

# Between a verb and its letter: "is clearly the", "would most likely be".
_ADVERB = (
    r"(?:(?!un|hard|bare|near|scarce|possib|suppos|wrong|incorrect|false|on)\w+ly|only|most|very|quite"
    r"|indeed|then|thus|therefore|hence|still|now|just|also|best|the|an?|my|our|correct|right"
    r"|final|single|following|to be|in fact|of course|by elimination|I (?:think|believe)"
    r"|labell?ed|marked|numbered|given (?:by|in)|expressed (?:by|in)|found in|stated in|as)"
)
_FILL = rf"(?:[\s,]*\b{_ADVERB}\b,?){{0,6}}"
_NO_LETTER = r"(?!(?-i:[A-HJ-Z])\b)"
# Between "I" and "choose": words after which nothing is chosen, as in "I would have chosen".
_NOT_CHOSEN = r"(?!(?:might|may|could|almost|nearly|(?<=d )have(?! to))\b)"
_BE = r"(?:is|are|was|were|be|being|seems|remains|becomes|appears|reads)\b"

ANNOUNCED = re.compile(
    rf"(?:\b(?:answers?|choice|option|selection|conclusion|solution|response|pick|guess|verdict"
    rf"|statement that|(?:correct|best|right|only|most|strongest)(?:\s+[\w-]+){{0,3}}?\s+"
    rf"(?:one|statement|inference|assumption|explanation|principle|argument|claim))\b"
    rf"(?:,\s(?:therefore|thus|then|hence)\b,?)?(?:\s+{_NO_LETTER}[\w',/-]+){{0,12}}?\s*(?:\b{_BE}|[:=]|[-–—]+(?=\s|\Z))\s*[:=]?"
    rf"|\b(?:I|we|you|let's|let us|I'd|I'll|I'm|we'd|we'll|must|should|I've)\b,?"
    rf"(?:\s+{_NO_LETTER}{_NOT_CHOSEN}[\w']+,?){{0,3}}?\s*"
    rf"\b(?:choose|chose|chosen|select|selected|pick|picked|prefer|say|go with|going with"
    rf"|answer(?: with)?"
    rf"|conclude|opt for|settle on|vote for|lean towards?|go for|mark)\b"
    rf"|\b(?:choosing|selecting|picking|going with)"
    rf"|(?:\A|[.:;\n])\s?(?:choose|select|pick|mark)\b|\bletter (?=is\b|:)(?:is)?|\\boxed)"
    rf"[\s:]*{_FILL}(?:[\s,]*\b{LABEL})?\s*[:-]?\s*\Z",
    _FLAGS,
)
CONCLUDED = re.compile(
    rf"(?:\A|\b)(?:answer|solution|so|therefore|thus|hence|(?<=[,.;:] )then|but|it's|it is"
    r"|it (?:must|would|should|has to) be|that's|that is|this is|think|believe|say|must be|which is"
    r"|consequently|by (?:process of )?elimination|thereby"
    r"|leav(?:es|ing)(?: us)?(?: only)?(?: with)?|left with|points? to|corresponds? to"
    r"|match(?:es)?|rather|actually|wait|no|sorry|I mean|I meant|make (?:that|it)|correction"
    r"|instead|both|either)\b[,:]?"
    rf"(?:\s+(?:it's|it is|that's|I choose|no))?{_FILL}(?:\s+{LABEL})?\s*:?\s*\Z"
    rf"|[⇒→]\s*(?:{LABEL}\s*)?\Z|(?:=>|->|-->)\s*(?:{LABEL}\s*)?\Z",
    _FLAGS,
)
#: After an "if", words such as "so" state only a condition.
CONDITIONAL = re.compile(r"\b(?:if|were|unless)\b", _FLAGS)
ONLY_THEN = re.compile(r"\bthen\b|\bwould\b", _FLAGS)
IF_FOLLOWS = re.compile(r"[),]*\s*(?:(?:but|only)\s+)*(?:if|unless)\b", _FLAGS)
#: In the announcing clause: an answer that is wrong, or not the writer's own last one.
OTHER_ANSWER = re.compile(
    r"\b(?:wrong|incorrect|common|second|trap|tempting|other|another|previous|earlier|initial|your(?=\s\w+\swas\b)"
    r"|(?:student|user|friend)'?s'?)(?:\s+(?!(?:the|an?|my)\b)[\w-]+){0,2}?"
    r"\s+(?:answer|choice|option|solution|response|guess|pick|selection)\b",
    _FLAGS,
)
#: Words of the group ``quality`` are said of several options: "A is true, B is true, C is not".
CALLED_RIGHT = re.compile(
    r" ?(?:is|seems|must be|would be|should be|looks|appears|remains|has to be)\s+(?:to be )?"
    r"(?:(?!(?:not|never|no|less|if|but|though|although|unless|(?<!the )only|barely|poorly|weakly"
    r"|partly|partially)\b"
    r"|un|in(?!deed)|wrong|hardly)[\w'-]+\s+){0,4}?"
    r"(?:correct|right|best|answer|strongest|(?:better|stronger)(?! than)"
    r"|most (?:suitable|appropriate|likely|logical|reasonable|plausible|accurate)"
    r"\s(?:answer|option|choice)"
    r"|one(?!\s(?:of|possible)\b|\s(?:that|which)\s"
    r"(?:contradicts(?! the passage and)|(?:we|I) (?:can|could)|can be (?:eliminated|ruled)))"
    r"|(?P<quality>supported|implied|accurate|(?:true|valid|necessary|conclusion|assumption|flaw)"
    r"(?=\s*(?:\Z|[.!\n]))))\b"
    r"(?!\s*,?\s*(?:but|however|only if|if|except|yet|though|although|at first|initially"
    r"|(?:only )?(?:under|in (?:an?other|a different))|had)\b)"
    r"| ?(?:it is|is it\.|it's not|✓|is my (?:final )?(?:answer|choice|pick))(?=\s*(?:\Z|[.!\n]))",
    _FLAGS,
)
#: After an unlabelled letter: the letter is the subject of the question's verb.
ANSWERS = re.compile(
    r" (?:(?:best|most|directly|correctly|clearly|also|would|does|must|should)\s){0,2}"
    r"(?:weaken|strengthen|support|follow|fit|match|explain|resolve|work|hold|undermine|make|provide"
    r"|capture|answer|identif|express|parallel|reconcile|complete|illustrate|because|since|as it)",
    _FLAGS,
)
#: Before "option B weakens it".
SO = re.compile(r"\b(?:so|therefore|thus|hence),?\s*\Z", _FLAGS)
#: Before and after a letter: "Only C follows".
ONLY_BEFORE = re.compile(
    r"(?:\A|[.!?\n]|\b(?:so|thus|hence|therefore),?\s)\s?only(?:\soption)?\Z", _FLAGS
)
FOLLOWS = re.compile(
    r"\s(?:follows|remains|works|is left)\b(?![^.!?\n]*\b(?:if|but|unless)\b)", _FLAGS
)
#: After a letter whose option is discussed, not judged. In lower case, as after a subject; the same
#: applies to words that rule it out.
DISCUSSED = re.compile(
    r" ?[):,]? ?(?:says|states|talks|discusses|mentions|claims|describes|refers|focuses|argues"
    r"|asserts|introduces|addresses|concerns|deals|compares|suggests|could|might|may"
    r"|(?:(?:seem|look|sound|appear)s?|is) (?:(?:very|quite|more|most|at first)\s)?"
    r"(?:tempting|attractive|appealing|plausible|promising|reasonable|close|similar)|and|or)\b",
)
_DENIED = r"(?:not|nor|neither|never|cannot|hardly|scarcely|except|than|unlike|against|\w+n't)"
RULED_OUT_BEFORE = re.compile(
    rf"\b(?:{_DENIED}|reject(?:ed|ing|s)?|exclud(?:e|ed|es|ing)|eliminat(?:e|ed|es|ing)|rul(?:e|ed"
    rf"|es|ing) out|instead of|rather than|discard(?:ed|ing)?|between|unless|whereas|while"
    rf"|comparing|compared? (?:to|with)|consider(?:ing)?|suppose|assum(?:e|ing)|look(?:ing)? at"
    rf"|examine|check|test|try|versus|vs\.?|maybe|perhaps|possibly|like|either of|if|whether)"
    rf"(?:\s+(?:be|been|to|it's|it is|possibly|even|{_ADVERB}|choose|select|pick|say|go|with|opt"
    rf"|for|{LABEL}s?))"
    rf"{{0,5}}\s*\Z"
    r"|\b(?:eliminated|excluded|ruled out|rejected|discarded)(?: options| choices)?:\s*\Z"
    rf"|\b(?:options|choices|alternatives)\s*:?\s*\Z",
    _FLAGS,
)
# Between a letter and words that rule it out: "B, while tempting, is wrong".
_ASIDE = (
    r"\)?,\s(?:while|although|though|albeit|because|since|despite|even|however|being|which|as|like"
    rf"|unlike)\b[^,.;:!?\n]*,|\)?\sas an? {LABEL}\b"
)
RULED_OUT_AFTER = re.compile(
    rf" ?(?:{_ASIDE}|[.):,])? ?(?:(?:is|are|was|were|seems?|looks?|appears?|would be|must be|can be"
    r"|could be|being)\s+(?:\w+\s+){0,3}?"
    r"(?:not|wrong|incorrect|false|invalid|irrelevant|ruled out|eliminated|excluded|out|unsupported"
    r"|no|never|too|rejected|unrelated|off|weaker|impossible|neither)\b(?!\s+\(?[A-Z]\b)"
    r"|(?:is|was|are|seems?|looks?|would be)\s+(?:(?:the|an?|at (?:best|most)|only|very)\s+){0,3}"
    r"(?:(?:almost|nearly)(?! certain)|partial|partly|half|close to|far from|nowhere|opposite"
    r"|second[- ]best|least|rarely|seldom|sometimes|possibly|perhaps|maybe|supposed|alleged)"
    r"|would be\b[^.!?\n]*?(?<!even)\sif\b"
    r"|[-–—:(]\s*(?:wrong|incorrect|eliminated|ruled out|not (?:the|an?|said|supported"
    r"|mentioned|correct|right|stated|relevant|implied|necessary|possible|true|consistent|discussed))\b"
    r"|(?:is|are|was|were|do|does|did|would|could|ca|wo|should)n't\b"
    r"|(?:can ?not|does not|do not|did not|would not|could not|(?:would )?fails?|contradicts?"
    r"|lacks?|misses|goes beyond|overstates|confuses)\b"
    r"|[✗✘❌✕×])| ?\)?\?",
)
#: Anywhere in the clause before announcing words: doubt, denial, or another speaker.
UNSAID = re.compile(
    rf"\b(?:{_DENIED}|if|whether|suppos\w+|assum(?:e|ing)|unless|might|may|could|maybe|perhaps"
    r"|possibly|doubt(?!less)|deny|reject\w*|wrong to|why|how|some(?:one)?|many|others|people"
    r"|they say|tempt\w+|initially|originally|at first|first thought|(?:was|were) (?:going|about)"
    r"|incorrectly|wrongly|false|would have)\b",
    _FLAGS,
)
#: The same, within the announcing words.
UNSETTLED = re.compile(
    r"\b(?:if|whether|unless|depends|initially|originally|at first|(?:was|were) (?:going|about)"
    r"|(?:I|we) (?:can|could|would|should|will) (?:eliminate|rule out|reject|exclude|discard)"
    r"(?! the (?:others?|rest))|(?<!others )can be (?:eliminated|ruled out|rejected|discarded))\b",
    _FLAGS,
)
#: At the beginning of the sentence: a first impression.
AT_FIRST = re.compile(
    r"(?:\A|[.!?\n])\s*(?:at first(?: glance| sight)?|initially|originally|on the surface),"
    r"(?:(?!\b(?:but|so|only|therefore)\b)[^,.;:!?\n])*\Z",
    _FLAGS,
)
#: Directly before a letter that is called right: somebody's claim, or nobody's.
DOUBTED = re.compile(
    r"(?:\b(?:no (?:evidence|reason|proof|indication|basis)|disagree)|(?:\A|[.!?\n])\s*The"
    r" (?:claim|idea|notion)) that"
    r"(?:\s(?:option|choice|answer))?\s?\Z",
    _FLAGS,
)
#: Before joined letters of which one will be chosen.
CANDIDATES = re.compile(r"\b(?:left with|between|down to)(?:\s(?:options|choices))?\s?\Z", _FLAGS)
#: After a label: its option is dismissed in the next sentence.
DISMISSED = re.compile(
    r"[).:] ?(?:this|it|that)(?: option| choice)? is (?:irrelevant|unsupported"
    r"|not (?:right|correct|supported|mentioned|stated|implied|relevant)\b"
    r"(?! explicitly| directly)|out of scope)",
    _FLAGS,
)
#: Before a letter that names something in the passage.
THING_BEFORE = re.compile(
    r"\b(?:plan|company|firm|vitamin|team|group|person|type|school|city|country|town|product|drug"
    r"|brand|store|hypothesis|theory|candidate|student|patient|region|hepatitis) ?\Z",
    _FLAGS,
)
SURE = re.compile(r"\b(?:no|without(?: any)?|not) (?:doubt|only|question)\b", _FLAGS)
DENIED_VERB = re.compile(
    rf"\b(?:{_DENIED}|could|might|may|can)"
    rf"(?:\s+(?:{_ADVERB}|also|well|possibly|be|have been|seem|appear|look|{LABEL})\b){{0,5}}\s*\Z",
    _FLAGS,
)
CLAUSE_END = re.compile(r"[,;.!?:\n()]|\b(?:but|so|therefore|thus|hence|because|since)\b", _FLAGS)
#: The writer takes back a statement; a later statement, anywhere, counts.
RECONSIDERED = re.compile(
    r"\b(?:wait|hold on|hang on|on second thoughts?|scratch that|strike that|oops|my mistake"
    r"|my apologies|I apologi[sz]e|I (?:made|was making) (?:a|an) (?:mistake|error)|I was wrong"
    r"|correction|corrected answer"
    r"|let me (?:re-?\w+|correct|fix|think again|double[- ]check|start over)"
    r"|I take (?:it|that) back|I misread"
    r"|(?:up)?on (?:further |closer |second )?(?:reflection|inspection|review))\b",
    _FLAGS,
)
#: The same within one sentence: "A, or rather B"; elsewhere these words take nothing back.
REWORDED = re.compile(r"\b(?:actually|no|nope|rather|I mean|I meant|sorry|make that)\b", _FLAGS)
#: Directly after a statement: the statement no longer holds.
WITHDRAWN = re.compile(
    r"\W{0,5}(?:(?:wait|no|oops|hmm|actually|sorry)\W{1,5}){0,3}(?:(?:scratch|strike) that"
    r"|I take (?:it|that) back|I was wrong|(?:that|this|it)(?: answer)?(?:'s| is| was)"
    r" (?:wrong|incorrect|not right|not correct|a mistake))\b",
    _FLAGS,
)
