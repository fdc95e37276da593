use super::*;

/// A clock that every look moves on by a millisecond: all engines are equally fast.
fn even() -> impl FnMut() -> u64 {
    let mut now = 0;
    move || {
        now += 1_000_000;
        now
    }
}

fn suite(name: &str) -> EspSuite {
    SuiteClass::all().map(SuiteClass::suite).find(|(_, n)| n == name).unwrap().0
}

#[test]
fn names_are_read_and_written() {
    for id in EngineId::ALL {
        let read = id.name().parse::<EngineId>();
        match id.missing() {
            None => assert_eq!(read, Ok(id)),
            Some(why) => {
                let error = read.unwrap_err();
                assert!(error.contains(why) && error.contains("aws-lc"), "{error}");
            }
        }
    }
    assert_eq!(
        "openssl".parse::<EngineId>(),
        Err("no engine 'openssl'; there are: aws-lc, vaes, avx2, ipsec-mb".into())
    );
}

#[test]
fn every_suite_has_its_own_place() {
    let mut seen = std::collections::HashSet::new();
    for (i, class) in SuiteClass::all().enumerate() {
        assert_eq!(class.index(), i);
        let (suite, name) = class.suite();
        assert_eq!(SuiteClass::of(&suite), Some(class), "{name}");
        assert!(crate::batch::keymat_lens(&suite).is_some(), "{name}");
        assert!(seen.insert(name));
    }
    assert_eq!(seen.len(), CLASSES);
}

#[test]
fn every_engine_here_answers_rightly() {
    let selection = Engines::select(&mut even(), None);
    assert_eq!(selection.warnings, Vec::<String>::new());
    assert_eq!(selection.table.len(), 2 * CLASSES);
    for line in &selection.table {
        let has = |id: &EngineId| id.has(SuiteClass::of(&suite(&line.suite)).unwrap());
        let expected: Vec<_> = EngineId::available().filter(has).collect();
        let timed: Vec<_> = line.speeds.iter().map(|s| s.engine).collect();
        assert!(timed == expected || line.suite.starts_with("3des-"), "{line:?}");
        assert!(expected.contains(&line.chosen) && !line.falls_back, "{line:?}");
    }
}

#[test]
fn a_wish_is_granted_where_it_can_be_and_the_table_says_where_not() {
    for wish in EngineId::ALL {
        let selection = Engines::select(&mut even(), Some(wish));
        assert_eq!(selection.warnings.len(), usize::from(wish.missing().is_some()));
        for line in &selection.table {
            let has = wish.has(SuiteClass::of(&suite(&line.suite)).unwrap());
            assert_eq!(line.chosen, if has { wish } else { EngineId::AwsLc }, "{line:?}");
            assert_eq!(line.falls_back, !has, "{line:?}");
        }
        if let Some(why) = wish.missing() {
            assert!(selection.warnings[0].contains(why));
            assert_eq!(selection.engines, Engines::portable());
        }
    }
}

#[test]
fn a_choice_has_spans_that_meet() {
    let choice = EngineChoice { small: EngineId::AwsLc, large: EngineId::Vaes, from: 300 };
    assert_eq!(choice.span(EngineId::AwsLc), 0..300);
    assert_eq!(choice.span(EngineId::Vaes), 300..u32::MAX);
    assert_eq!(choice.span(EngineId::IpsecMb), 0..0);
    assert_eq!(EngineChoice::one(EngineId::Vaes).span(EngineId::Vaes), 0..u32::MAX);
}
